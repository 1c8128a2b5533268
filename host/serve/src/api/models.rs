//! `GET /api/v1/models`: models, their versions, and what they take and give.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use saggar_plugin::{ModelPort, Signature};
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::models::plan::STABLE;
use crate::models::settings::KeepAlive;
use crate::models::state::{Rest, Swap};
use crate::models::{IdleReason, ModelStatus, Origin, VersionState, VersionStatus};

/// `GET /api/v1/models`.
pub(crate) async fn list(State(app): State<App>) -> Json<Value> {
    let models: Vec<Value> = app.models().list().iter().map(summary).collect();
    Json(json!({ "models": models }))
}

/// `GET /api/v1/models/{model}`.
pub(crate) async fn one(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    Ok(Json(whole(&app.models().status(&name)?)))
}

/// A model with its signature.
pub(crate) fn whole(status: &ModelStatus) -> Value {
    let mut model = summary(status);
    if let Some(serving) = &status.serving {
        model["signature"] = signature(serving.predictor().signature());
        model["device"] = json!(serving.device);
    }
    model
}

/// What a model takes and gives, item by item.
pub(crate) fn signature(signature: &Signature) -> Value {
    let ports = |ports: &[ModelPort]| ports.iter().map(port).collect::<Vec<Value>>();
    json!({
        "inputs": ports(&signature.inputs),
        "outputs": ports(&signature.outputs),
        "batch_sizes": signature.batch_sizes,
    })
}

/// A model without its signature.
pub(crate) fn summary(model: &ModelStatus) -> Value {
    let stable = model.serving.as_ref().map(|serving| serving.version);
    let mut aliases = model.plan.aliases.clone();
    if let Some(stable) = stable {
        aliases.entry(STABLE.to_owned()).or_insert(stable);
    }
    let (state, reason) = state(model);
    json!({
        "name": model.name,
        "serving": stable,
        "state": state,
        "reason": reason,
        "versions": model.versions.iter().map(|it| version(model, it)).collect::<Vec<Value>>(),
        "aliases": aliases,
        "traffic": model.plan.traffic,
        "shadow": model.plan.shadow,
        "follows_newest": model.follows_newest(),
        "notice": model.notice(),
        "last_swap": model.last_swap.as_ref().map(swap),
        "config": config(model),
    })
}

/// The model's state in a word, and why, where there is something to explain.
fn state(model: &ModelStatus) -> (&'static str, String) {
    let newest = model.versions.last();
    let detail = || newest.map(|version| version.reason.clone()).unwrap_or_default();
    match (&model.rest, &model.serving) {
        (Rest::Unloaded, _) => ("UNLOADED", IdleReason::ModelUnloaded.sentence(&model.name, 0)),
        (Rest::Asleep(reason), None) => ("ASLEEP", (*reason).to_owned()),
        (_, Some(_)) => ("READY", String::new()),
        (_, None) if model.versions.iter().any(|it| it.state == VersionState::Loading) => ("LOADING", String::new()),
        (_, None) if newest.is_some_and(|it| it.state == VersionState::Failed) => ("FAILED", detail()),
        (_, None) => ("UNLOADED", detail()),
    }
}

fn swap(swap: &Swap) -> Value {
    json!({
        "at_ms": swap.at_ms,
        "from": swap.from,
        "to": swap.to,
        "kind": swap.kind,
        "reason": swap.reason,
        "seconds": swap.seconds,
    })
}

/// How the model is served: what was set, and what holds where nothing was.
pub(crate) fn config(model: &ModelStatus) -> Value {
    let settings = &model.settings;
    let largest = model.serving.as_ref().map(|serving| serving.terms().rules.items_max);
    let mut config = serde_json::to_value(settings).unwrap_or_default();
    config["batch"]["max_items"] = json!(settings.batch.max_items.or(largest));
    config["keep_alive"] = json!(model.keep_alive().to_string());
    config
}

fn version(model: &ModelStatus, version: &VersionStatus) -> Value {
    let origin = version.origin.as_ref();
    let serving = version.serving.as_ref();
    let used_ms = serving.map(|serving| serving.used_ms()).filter(|&ms| ms > 0);
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
        "reason_code": version.idle.map(IdleReason::code),
        "plugin": origin.map(|origin| origin.plugin.hex()),
        "weights": origin.map(|origin| origin.weights.hex()),
        "created_ms": origin.map(|origin| origin.created_ms),
        "source_job": origin.map(|origin| origin.source_job.clone()),
        "metrics": origin.map(|origin| &origin.metrics),
        "measured": origin.map_or_else(String::new, Origin::measured),
        "bytes": serving.map(|serving| serving.predictor().bytes()),
        "aliases": version.aliases,
        "traffic_percent": version.traffic_percent,
        "last_used_ms": used_ms,
        "expires_in_ms": expires_ms,
    })
}

fn port(port: &ModelPort) -> Value {
    json!({
        "name": port.name,
        "dtype": port.item.dtype.name(),
        "shape": port.item.shape.dims(),
        "semantics": port.semantics,
        "classes": port.classes,
        "default": port.default,
    })
}
