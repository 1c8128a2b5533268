//! A model's configuration in the fields of Triton's `ModelConfig` that have an equivalent here.

use axum::Json;
use axum::extract::{Path, State};
use saggar_plugin::ModelPort;
use saggar_rest::oip::{
    OipBatchingDocument, OipConfigDocument, OipConfigParameters, OipStringParameter, OipTensorConfig,
};
use saggar_serving::ModelReference;
use serde_json::Value;

use super::datatype::{OipDatatype, item_dims};
use super::metadata::PLATFORM;
use super::request::is_batched;
use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /v2/models/{model}/config`.
pub(super) async fn by_name(
    State(app): State<AppState>,
    Path(model): Path<String>,
) -> Result<Json<OipConfigDocument>, ApiError> {
    describe_config(&app, &super::parse_reference(&model, None)?).await
}

/// Handles `GET /v2/models/{model}/versions/{version}/config`.
pub(super) async fn by_version(
    State(app): State<AppState>,
    Path((model, version)): Path<(String, String)>,
) -> Result<Json<OipConfigDocument>, ApiError> {
    describe_config(&app, &super::parse_reference(&model, Some(&version))?).await
}

/// Describes the configuration of a model.
///
/// # Errors
/// Returns the errors of [`ready_version`](super::ready_version).
pub(super) async fn describe_config(
    app: &AppState,
    reference: &ModelReference,
) -> Result<Json<OipConfigDocument>, ApiError> {
    let serving = super::ready_version(app, reference).await?;
    let settings = crate::api::models::config_document(&app.models().status(&reference.model)?);
    let rules = serving.policy().batch;
    let signature = serving.predictor().signature();
    let input = |port: &ModelPort| OipTensorConfig { optional: Some(port.default.is_some()), ..tensor_config(port) };
    Ok(Json(OipConfigDocument {
        name: serving.model.clone(),
        platform: PLATFORM.to_owned(),
        backend: "saggar".to_owned(),
        // Larger batches are accepted too, and computed in parts.
        max_batch_size: if is_batched(signature) { rules.items_max } else { 0 },
        dynamic_batching: OipBatchingDocument {
            max_queue_delay_microseconds: u64::try_from(rules.delay_max.as_micros()).unwrap_or(u64::MAX),
        },
        input: signature.inputs.iter().map(input).collect(),
        output: signature.outputs.iter().map(tensor_config).collect(),
        // The text that a load accepts as its `config`.
        parameters: OipConfigParameters {
            saggar: OipStringParameter { string_value: Value::Object(settings.0).to_string() },
        },
    }))
}

fn tensor_config(port: &ModelPort) -> OipTensorConfig {
    OipTensorConfig {
        name: port.name.clone(),
        data_type: OipDatatype::from_port(port).config_name().to_owned(),
        dims: item_dims(port).to_vec(),
        optional: None,
    }
}
