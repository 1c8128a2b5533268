//! `GET /api/v1/models`: models, their versions and their signatures.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use saggar_plugin::{ModelPort, ModelSignature};
use saggar_rest::models::{
    ImageNormalizationDocument, ImagePreprocessingDocument, ImageResizeDocument, ModelConfigDocument, ModelDocument,
    ModelListDocument, ModelRouteDocument, ModelVersionDocument, PortDocument, ShadowDocument, SignatureDocument,
    VersionSwapDocument,
};
use saggar_serving::desired_state::STABLE;
use saggar_serving::model_config::{BatchConfig, KeepAlive, ModelConfig};
use saggar_serving::model_state::{Residency, VersionSwap};
use saggar_serving::{ModelStatus, UnservedReason, VersionOrigin, VersionState, VersionStatus};
use saggar_store::{ImageNormalization, ImagePreprocessing};
use serde_json::Value;

use super::metric_values::finite_metrics;
use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /api/v1/models`.
pub(crate) async fn list(State(app): State<AppState>) -> Json<ModelListDocument> {
    Json(ModelListDocument { models: app.models().list().iter().map(model_summary).collect() })
}

/// Handles `GET /api/v1/models/{model}`.
pub(crate) async fn get(
    State(app): State<AppState>,
    Path(name): Path<String>,
) -> Result<Json<ModelDocument>, ApiError> {
    Ok(Json(model_document(&app.models().status(&name)?)))
}

/// Returns a model with its signature.
pub(crate) fn model_document(status: &ModelStatus) -> ModelDocument {
    let serving = status.serving.as_ref();
    ModelDocument {
        signature: serving.map(|serving| signature_document(serving.predictor().signature())),
        device: serving.map(|serving| serving.device.clone()),
        ..model_summary(status)
    }
}

/// Returns a model's inputs and outputs, per item.
pub(crate) fn signature_document(signature: &ModelSignature) -> SignatureDocument {
    SignatureDocument {
        inputs: signature.inputs.iter().map(port_document).collect(),
        outputs: signature.outputs.iter().map(port_document).collect(),
        batch_sizes: signature.batch_sizes.clone(),
        routes: route_documents(signature),
    }
}

/// Returns the additional paths of a model: predictions first, then the handlers of its plugin.
fn route_documents(signature: &ModelSignature) -> Vec<ModelRouteDocument> {
    let predictions = signature.routes.iter().map(|route| ModelRouteDocument {
        methods: vec!["GET".to_owned(), "POST".to_owned()],
        path: route.path.clone(),
        kind: "prediction".to_owned(),
        description: String::new(),
    });
    let handlers = signature.handlers.iter().map(|handler| ModelRouteDocument {
        methods: vec![handler.method.name().to_owned()],
        path: handler.path.clone(),
        kind: "handler".to_owned(),
        description: handler.description.clone(),
    });
    predictions.chain(handlers).collect()
}

/// Returns a model without its signature.
pub(crate) fn model_summary(model: &ModelStatus) -> ModelDocument {
    let stable = model.serving.as_ref().map(|serving| serving.version);
    let mut aliases = model.desired.aliases.clone();
    if let Some(stable) = stable {
        aliases.entry(STABLE.to_owned()).or_insert(stable);
    }
    let (state, reason) = model_state(model);
    let shadow = model.desired.shadow.as_ref();
    ModelDocument {
        name: model.name.clone(),
        serving: stable,
        state: state.to_owned(),
        reason,
        versions: model.versions.iter().map(|it| version_document(model, it)).collect(),
        aliases,
        traffic: model.desired.traffic.clone(),
        shadow: shadow.map(|shadow| ShadowDocument { to: shadow.to.clone(), percent: shadow.percent }),
        follows_newest: model.follows_newest(),
        notice: model.promotion_notice(),
        last_swap: model.last_swap.as_ref().map(swap_document),
        config: config_document(model),
        signature: None,
        device: None,
    }
}

/// Returns the model's state and, if it needs explaining, the reason.
fn model_state(model: &ModelStatus) -> (&'static str, String) {
    let newest = model.versions.last();
    let detail = || newest.map(|version| version.reason.clone()).unwrap_or_default();
    match (&model.residency, &model.serving) {
        (Residency::Unloaded, _) => ("UNLOADED", UnservedReason::ModelUnloaded.message(&model.name, 0)),
        (Residency::Asleep(reason), None) => ("ASLEEP", (*reason).to_owned()),
        (_, Some(_)) => ("READY", String::new()),
        (_, None) if model.versions.iter().any(|it| it.state == VersionState::Loading) => ("LOADING", String::new()),
        (_, None) if newest.is_some_and(|it| it.state == VersionState::Failed) => ("FAILED", detail()),
        (_, None) => ("UNLOADED", detail()),
    }
}

fn swap_document(swap: &VersionSwap) -> VersionSwapDocument {
    VersionSwapDocument {
        at_ms: swap.at_ms,
        from: swap.from,
        to: swap.to,
        kind: swap.kind.to_owned(),
        reason: swap.reason.to_owned(),
        seconds: swap.seconds,
    }
}

/// Returns how the model is served: the configured values, and the defaults for the others.
pub(crate) fn config_document(model: &ModelStatus) -> ModelConfigDocument {
    let configured = &model.config;
    let largest = model.serving.as_ref().map(|serving| serving.policy().batch.items_max);
    let config = ModelConfig {
        batch: BatchConfig { max_items: configured.batch.max_items.or(largest), ..configured.batch },
        keep_alive: model.keep_alive(),
        ..configured.clone()
    };
    match serde_json::to_value(config) {
        Ok(Value::Object(members)) => ModelConfigDocument(members),
        Ok(_) | Err(_) => ModelConfigDocument::default(),
    }
}

pub(super) fn version_document(model: &ModelStatus, version: &VersionStatus) -> ModelVersionDocument {
    let origin = version.origin.as_ref();
    let serving = version.serving.as_ref();
    let used_ms = serving.map(|serving| serving.last_used_ms()).filter(|&ms| ms > 0);
    let expires_ms = |keep: Duration| {
        let idle = serving.filter(|_| used_ms.is_some())?.idle_since().elapsed();
        u64::try_from(keep.saturating_sub(idle).as_millis()).ok()
    };
    let expires_ms = match model.keep_alive() {
        KeepAlive::Forever => None,
        KeepAlive::For(keep) => expires_ms(keep),
    };
    ModelVersionDocument {
        version: version.version,
        state: version.state.name().to_owned(),
        reason: version.reason.clone(),
        reason_code: version.unserved.map(|unserved| unserved.code().to_owned()),
        plugin: origin.map(|origin| origin.plugin.hex()),
        weights: origin.map(|origin| origin.weights.hex()),
        created_ms: origin.map(|origin| origin.created_ms),
        source_job: origin.map(|origin| origin.source_job.clone()),
        metrics: origin.map(|origin| finite_metrics(&origin.metrics)),
        measured: origin.map_or_else(String::new, VersionOrigin::summarize_metrics),
        bytes: serving.map(|serving| serving.predictor().device_bytes()),
        aliases: version.aliases.clone(),
        traffic_percent: version.traffic_percent,
        last_used_ms: used_ms,
        expires_in_ms: expires_ms,
    }
}

fn port_document(port: &ModelPort) -> PortDocument {
    PortDocument {
        name: port.name.clone(),
        dtype: port.item.dtype.name().to_owned(),
        shape: port.item.shape.dims().to_vec(),
        semantics: port.semantics.clone(),
        classes: port.classes.clone(),
        default: port.default,
        preprocessing: port.preprocessing.as_deref().map(preprocessing_document),
    }
}

fn preprocessing_document(it: &ImagePreprocessing) -> ImagePreprocessingDocument {
    ImagePreprocessingDocument {
        resize: ImageResizeDocument {
            height: it.resize.height,
            width: it.resize.width,
            fit: it.resize.fit.name().to_owned(),
        },
        colors: it.colors.name().to_owned(),
        normalization: match it.normalization.clone() {
            ImageNormalization::MeanAndScale { mean, scale } => {
                ImageNormalizationDocument::MeanAndScale { mean, scale }
            }
            ImageNormalization::PerImageStandardization => ImageNormalizationDocument::PerImageStandardization,
        },
        layout: it.layout.name().to_owned(),
    }
}
