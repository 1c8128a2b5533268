//! A model's configuration in the fields of Triton's `ModelConfig` that have an equivalent here.

use axum::Json;
use axum::extract::{Path, State};
use saggar_plugin::ModelPort;
use saggar_serving::ModelReference;
use serde_json::{Value, json};

use super::datatype::{OipDatatype, item_dims};
use super::metadata::PLATFORM;
use super::request::is_batched;
use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /v2/models/{model}/config`.
pub(super) async fn by_name(State(app): State<AppState>, Path(model): Path<String>) -> Result<Json<Value>, ApiError> {
    describe_config(&app, &super::parse_reference(&model, None)?).await
}

/// Handles `GET /v2/models/{model}/versions/{version}/config`.
pub(super) async fn by_version(
    State(app): State<AppState>,
    Path((model, version)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    describe_config(&app, &super::parse_reference(&model, Some(&version))?).await
}

async fn describe_config(app: &AppState, reference: &ModelReference) -> Result<Json<Value>, ApiError> {
    let serving = super::ready_version(app, reference).await?;
    let settings = crate::api::models::config_json(&app.models().status(&reference.model)?);
    let rules = serving.policy().batch;
    let signature = serving.predictor().signature();
    let input = |port: &ModelPort| {
        let mut tensor = tensor_config(port);
        tensor["optional"] = json!(port.default.is_some());
        tensor
    };
    Ok(Json(json!({
        "name": serving.model,
        "platform": PLATFORM,
        "backend": "saggar",
        // Larger batches are accepted too, and computed in parts.
        "max_batch_size": if is_batched(signature) { rules.items_max } else { 0 },
        "dynamic_batching": { "max_queue_delay_microseconds": u64::try_from(rules.delay_max.as_micros()).unwrap_or(u64::MAX) },
        "input": signature.inputs.iter().map(input).collect::<Vec<Value>>(),
        "output": signature.outputs.iter().map(tensor_config).collect::<Vec<Value>>(),
        // The text that a load accepts as its `config`.
        "parameters": { "saggar": { "string_value": settings.to_string() } },
    })))
}

fn tensor_config(port: &ModelPort) -> Value {
    json!({ "name": port.name, "data_type": OipDatatype::from_port(port).config_name(), "dims": item_dims(port) })
}
