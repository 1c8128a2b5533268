//! `/predictions`, and the description of a model at `GET /models/{model}/predict`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::models::SignatureDocument;

/// Creates a prediction. Unknown members are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PredictionRequest")]
pub struct PredictionRequest {
    /// The model's inputs by name.
    pub input: Value,
    /// NAME, NAME@VERSION or NAME@ALIAS; the default model if omitted.
    #[serde(default)]
    pub model: Option<String>,
    /// The destination of events: an address that the server is allowed to call.
    #[serde(default)]
    pub webhook: Option<String>,
    /// The events to send; only start and completed are ever sent.
    #[serde(default)]
    #[schemars(inner(regex(pattern = "^(start|output|logs|completed)$")))]
    pub webhook_events_filter: Option<Vec<String>>,
}

/// A prediction that can be polled.
// `Json` is the type of its input and outputs. The server keeps them as text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Prediction", bound = "Json: Default + Serialize")]
pub struct PredictionDocument<Json = Value> {
    /// Its identifier.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// The model's version.
    pub version: String,
    /// Its state.
    #[schemars(extend("enum" = ["starting", "processing", "succeeded", "failed", "canceled"]))]
    pub status: String,
    /// The input as it was sent, if it is small.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub input: Option<Json>,
    /// The outputs by name, once it has succeeded.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub output: Option<Json>,
    /// Why it failed.
    pub error: Option<String>,
    /// Always empty.
    pub logs: String,
    /// When it was created.
    #[schemars(extend("format" = "date-time"))]
    pub created_at: String,
    /// When it started.
    #[schemars(extend("format" = "date-time"))]
    pub started_at: Option<String>,
    /// When it ended.
    #[schemars(extend("format" = "date-time"))]
    pub completed_at: Option<String>,
    /// Measurements of a prediction that succeeded.
    pub metrics: PredictionMetrics,
}

/// Measurements of a prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "PredictionMetrics")]
pub struct PredictionMetrics {
    /// The seconds that it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predict_time: Option<f64>,
}

/// The inputs and outputs of a model, with an example body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Description")]
pub struct ModelDescription {
    /// The model's name.
    pub model: String,
    /// The version that answers.
    pub version: u64,
    /// Its inputs and outputs.
    pub signature: SignatureDocument,
    /// A body that it accepts; null if it would be long.
    pub example: Option<Map<String, Value>>,
}
