//! `GET /api/v1/models`: models, their versions and their signatures.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use saggar_plugin::{ModelPort, ModelSignature};
use saggar_serving::desired_state::STABLE;
use saggar_serving::model_config::KeepAlive;
use saggar_serving::model_state::{Residency, VersionSwap};
use saggar_serving::{ModelStatus, UnservedReason, VersionOrigin, VersionState, VersionStatus};
use serde_json::{Value, json};

use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /api/v1/models`.
pub(crate) async fn list(State(app): State<AppState>) -> Json<Value> {
    let models: Vec<Value> = app.models().list().iter().map(model_summary_json).collect();
    Json(json!({ "models": models }))
}

/// Handles `GET /api/v1/models/{model}`.
pub(crate) async fn get(State(app): State<AppState>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    Ok(Json(model_json(&app.models().status(&name)?)))
}

/// Returns a model with its signature.
pub(crate) fn model_json(status: &ModelStatus) -> Value {
    let mut model = model_summary_json(status);
    if let Some(serving) = &status.serving {
        model["signature"] = signature_json(serving.predictor().signature());
        model["device"] = json!(serving.device);
    }
    model
}

/// Returns a model's inputs and outputs, per item.
pub(crate) fn signature_json(signature: &ModelSignature) -> Value {
    let ports = |ports: &[ModelPort]| ports.iter().map(port_json).collect::<Vec<Value>>();
    json!({
        "inputs": ports(&signature.inputs),
        "outputs": ports(&signature.outputs),
        "batch_sizes": signature.batch_sizes,
    })
}

/// Returns a model without its signature.
pub(crate) fn model_summary_json(model: &ModelStatus) -> Value {
    let stable = model.serving.as_ref().map(|serving| serving.version);
    let mut aliases = model.desired.aliases.clone();
    if let Some(stable) = stable {
        aliases.entry(STABLE.to_owned()).or_insert(stable);
    }
    let (state, reason) = model_state(model);
    json!({
        "name": model.name,
        "serving": stable,
        "state": state,
        "reason": reason,
        "versions": model.versions.iter().map(|it| version_json(model, it)).collect::<Vec<Value>>(),
        "aliases": aliases,
        "traffic": model.desired.traffic,
        "shadow": model.desired.shadow,
        "follows_newest": model.follows_newest(),
        "notice": model.promotion_notice(),
        "last_swap": model.last_swap.as_ref().map(swap_json),
        "config": config_json(model),
    })
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

fn swap_json(swap: &VersionSwap) -> Value {
    json!({
        "at_ms": swap.at_ms,
        "from": swap.from,
        "to": swap.to,
        "kind": swap.kind,
        "reason": swap.reason,
        "seconds": swap.seconds,
    })
}

/// Returns how the model is served: the configured values, and the defaults for the others.
pub(crate) fn config_json(model: &ModelStatus) -> Value {
    let settings = &model.config;
    let largest = model.serving.as_ref().map(|serving| serving.policy().batch.items_max);
    let mut config = serde_json::to_value(settings).unwrap_or_default();
    config["batch"]["max_items"] = json!(settings.batch.max_items.or(largest));
    config["keep_alive"] = json!(model.keep_alive().to_string());
    config
}

fn version_json(model: &ModelStatus, version: &VersionStatus) -> Value {
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
    json!({
        "version": version.version,
        "state": version.state.name(),
        "reason": version.reason,
        "reason_code": version.unserved.map(UnservedReason::code),
        "plugin": origin.map(|origin| origin.plugin.hex()),
        "weights": origin.map(|origin| origin.weights.hex()),
        "created_ms": origin.map(|origin| origin.created_ms),
        "source_job": origin.map(|origin| origin.source_job.clone()),
        "metrics": origin.map(|origin| &origin.metrics),
        "measured": origin.map_or_else(String::new, VersionOrigin::summarize_metrics),
        "bytes": serving.map(|serving| serving.predictor().device_bytes()),
        "aliases": version.aliases,
        "traffic_percent": version.traffic_percent,
        "last_used_ms": used_ms,
        "expires_in_ms": expires_ms,
    })
}

fn port_json(port: &ModelPort) -> Value {
    json!({
        "name": port.name,
        "dtype": port.item.dtype.name(),
        "shape": port.item.shape.dims(),
        "semantics": port.semantics,
        "classes": port.classes,
        "default": port.default,
    })
}
