//! `GET` where predictions are posted: what the model takes and gives, and inputs to begin with, for whoever opens the
//! address that `saggar run --mode serve` prints.

use axum::Json;
use axum::extract::{Path, State};
use saggar_plugin::{ModelPort, Signature};
use serde_json::{Map, Value, json};

use super::reference::Reference;
use crate::api::models::signature;
use crate::app::App;
use crate::error::ApiError;
use crate::limits::EXAMPLE_ELEMENTS_MAX;
use crate::models::Serving;

/// `GET /predict`: the default model.
pub(crate) async fn by_default(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    Ok(Json(described(&*app.models().find(None)?)))
}

/// `GET /models/{model}/predict`, with `name`, `name@version` or `name@alias`.
pub(crate) async fn by_name(State(app): State<App>, Path(model): Path<String>) -> Result<Json<Value>, ApiError> {
    let reference = Reference::parse(&model)?;
    Ok(Json(described(&*app.models().find(Some(&reference))?)))
}

fn described(serving: &Serving) -> Value {
    let of_model = serving.predictor().signature();
    json!({
        "model": serving.model,
        "version": serving.version,
        "signature": signature(of_model),
        "example": example(of_model),
    })
}

/// A body that can be posted: defaults, empty texts, and zeros. Null where that would be long.
fn example(signature: &Signature) -> Value {
    let elements = signature.inputs.iter().fold(0usize, |sum, port| sum.saturating_add(port.item.shape.elements()));
    if elements > EXAMPLE_ELEMENTS_MAX {
        return Value::Null;
    }
    let inputs: Map<String, Value> = signature.inputs.iter().map(|port| (port.name.clone(), item(port))).collect();
    Value::Object(inputs)
}

fn item(port: &ModelPort) -> Value {
    if port.text_bytes().is_some() {
        return json!("");
    }
    let number = port.default.unwrap_or(0.0);
    let whole = !matches!(port.item.dtype, saggar_tensor::DType::F32 | saggar_tensor::DType::F16);
    let element = if whole { json!(number as i64) } else { json!(number) };
    port.item.shape.dims().iter().rev().fold(element, |items, &length| json!(vec![items; length]))
}
