//! `GET` on the prediction routes: describes the model's inputs and outputs with an example body, for people who open
//! the URL that `saggar run --mode serve` prints.

use axum::Json;
use axum::extract::{Path, State};
use saggar_plugin::{ModelPort, ModelSignature};
use saggar_rest::predictions::ModelDescription;
use saggar_serving::{LiveVersion, ModelReference};
use serde_json::{Map, Value};

use crate::api::models::signature_document;
use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::EXAMPLE_ELEMENTS_MAX;

/// `GET /predict`: describes the default model.
pub(crate) async fn describe_default(State(app): State<AppState>) -> Result<Json<ModelDescription>, ApiError> {
    Ok(Json(describe_version(&*app.models().find_live(None)?)))
}

/// `GET /models/{model}/predict`, with `name`, `name@version` or `name@alias`.
pub(crate) async fn describe_named(
    State(app): State<AppState>,
    Path(model): Path<String>,
) -> Result<Json<ModelDescription>, ApiError> {
    let reference = ModelReference::parse(&model)?;
    Ok(Json(describe_version(&*app.models().find_live(Some(&reference))?)))
}

fn describe_version(serving: &LiveVersion) -> ModelDescription {
    let of_model = serving.predictor().signature();
    ModelDescription {
        model: serving.model.clone(),
        version: serving.version,
        signature: signature_document(of_model),
        example: example_body(of_model),
    }
}

/// Returns an example body of defaults, empty texts and zeros, or `None` if it would be long.
fn example_body(signature: &ModelSignature) -> Option<Map<String, Value>> {
    let elements = signature.inputs.iter().fold(0usize, |sum, port| sum.saturating_add(port.item.shape.elements()));
    if elements > EXAMPLE_ELEMENTS_MAX {
        return None;
    }
    Some(signature.inputs.iter().map(|port| (port.name.clone(), example_item(port))).collect())
}

fn example_item(port: &ModelPort) -> Value {
    if port.text_bytes_max().is_some() {
        return "".into();
    }
    let number = port.default.unwrap_or(0.0);
    let whole = !matches!(port.item.dtype, saggar_tensor::DType::F32 | saggar_tensor::DType::F16);
    let element: Value = if whole { (number as i64).into() } else { number.into() };
    port.item.shape.dims().iter().rev().fold(element, |items, &length| vec![items; length].into())
}
