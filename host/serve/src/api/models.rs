//! `GET /api/v1/models`: models, their versions, and what they take and give.

use axum::Json;
use axum::extract::{Path, State};
use saggar_plugin::ModelPort;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::models::{ModelStatus, VersionStatus};

/// `GET /api/v1/models`.
pub(crate) async fn list(State(app): State<App>) -> Json<Value> {
    let models: Vec<Value> = app.models().list().iter().map(summary).collect();
    Json(json!({ "models": models }))
}

/// `GET /api/v1/models/{model}`.
pub(crate) async fn one(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let status = app.models().status(&name)?;
    let mut model = summary(&status);
    if let Some(serving) = &status.serving {
        let signature = serving.predictor().signature();
        let ports = |ports: &[ModelPort]| ports.iter().map(port).collect::<Vec<Value>>();
        model["signature"] = json!({
            "inputs": ports(&signature.inputs),
            "outputs": ports(&signature.outputs),
            "batch_sizes": signature.batch_sizes,
        });
        model["device"] = json!(serving.device);
    }
    Ok(Json(model))
}

/// A model without its signature.
pub(crate) fn summary(model: &ModelStatus) -> Value {
    json!({
        "name": model.name,
        "serving": model.serving.as_ref().map(|serving| serving.version),
        "versions": model.versions.iter().map(version).collect::<Vec<Value>>(),
    })
}

fn version(version: &VersionStatus) -> Value {
    let origin = version.origin.as_ref();
    json!({
        "version": version.version,
        "state": version.state.name(),
        "reason": version.reason,
        "plugin": origin.map(|origin| origin.plugin.hex()),
        "weights": origin.map(|origin| origin.weights.hex()),
        "created_ms": origin.map(|origin| origin.created_ms),
        "source_job": origin.map(|origin| origin.source_job.clone()),
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
