//! The documents of the REST interface of TensorFlow Serving, below `/v1`.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The names of all models, as KServe V1 lists them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsModels")]
pub struct TfsModelList {
    /// The names.
    pub models: Vec<String>,
}

/// The states of a model's versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsStatus")]
pub struct TfsStatusDocument {
    /// The versions.
    pub model_version_status: Vec<TfsVersionStatus>,
    /// The model's name, which KServe V1 expects here.
    pub name: String,
    /// Whether the model, or the requested version, is ready: KServe V1 expects it here.
    pub ready: bool,
}

/// The state of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsVersionStatus")]
pub struct TfsVersionStatus {
    /// The version.
    pub version: String,
    /// Its state.
    #[schemars(extend("enum" = ["UNKNOWN", "START", "LOADING", "AVAILABLE", "UNLOADING", "END"]))]
    pub state: String,
    /// Its error, if it has one.
    pub status: TfsErrorStatus,
}

/// An error of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsErrorStatus")]
pub struct TfsErrorStatus {
    /// `OK`, or a code of gRPC.
    pub error_code: String,
    /// The error as text.
    pub error_message: String,
}

/// The inputs and outputs of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsMetadata")]
pub struct TfsMetadataDocument {
    /// The version.
    pub model_spec: TfsModelSpec,
    /// Its metadata.
    pub metadata: TfsMetadata,
}

/// Names a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsModelSpec")]
pub struct TfsModelSpec {
    /// The model's name.
    pub name: String,
    /// Always empty.
    pub signature_name: String,
    /// The version.
    pub version: String,
}

/// The metadata of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsMetadataEntries")]
pub struct TfsMetadata {
    /// Its signatures.
    pub signature_def: TfsSignatures,
}

/// The signatures of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsSignatures")]
pub struct TfsSignatures {
    /// The signatures by name. There is one, `serving_default`.
    pub signature_def: BTreeMap<String, TfsSignature>,
}

/// A signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsSignature")]
pub struct TfsSignature {
    /// The inputs by name.
    pub inputs: IndexMap<String, TfsTensor>,
    /// The outputs by name.
    pub outputs: IndexMap<String, TfsTensor>,
    /// Always `tensorflow/serving/predict`.
    pub method_name: String,
    /// Always empty.
    pub defaults: Map<String, Value>,
}

/// An input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsTensor")]
pub struct TfsTensor {
    /// Its data type, such as `DT_FLOAT`.
    pub dtype: String,
    /// Its shape.
    pub tensor_shape: TfsShape,
    /// Its name in the graph.
    pub name: String,
}

/// The shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsShape")]
pub struct TfsShape {
    /// The dimensions. The first is -1 if items can be batched.
    pub dim: Vec<TfsDimension>,
    /// Always false.
    pub unknown_rank: bool,
}

/// A dimension of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsDimension")]
pub struct TfsDimension {
    /// Its size.
    pub size: String,
    /// Always empty.
    pub name: String,
}

/// A prediction request, by rows or by columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "TfsPredictRequest")]
pub enum TfsPredictRequest {
    /// By rows.
    Rows {
        /// The signature. Only `serving_default`, the default, exists.
        #[serde(default)]
        #[schemars(extend("enum" = ["", "serving_default"]))]
        signature_name: String,
        /// Rows: values if the model has one input, else objects of all inputs. A text can be `{"b64": BASE64}`.
        #[schemars(length(min = 1))]
        instances: Vec<Value>,
    },
    /// By columns.
    Columns {
        /// The signature. Only `serving_default`, the default, exists.
        #[serde(default)]
        #[schemars(extend("enum" = ["", "serving_default"]))]
        signature_name: String,
        /// Columns: the value of the only input, or an object of all inputs, each with the batch first.
        inputs: Value,
    },
}

/// The response to a prediction request, in the form of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "TfsPredictAnswer")]
pub enum TfsPredictResponse {
    /// By rows.
    Rows {
        /// One prediction for each row.
        predictions: Vec<Value>,
    },
    /// By columns.
    Columns {
        /// The value of the only output, or an object of all outputs.
        outputs: Value,
    },
}

/// Examples to classify or to predict a number for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsExamples")]
pub struct TfsExamplesRequest {
    /// The signature.
    #[serde(default)]
    pub signature_name: String,
    /// Features that all examples share.
    #[serde(default)]
    pub context: Map<String, Value>,
    /// The examples: features by name.
    #[schemars(length(min = 1))]
    pub examples: Vec<Map<String, Value>>,
}

/// The classes of examples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsClassifyAnswer")]
pub struct TfsClassifyResponse {
    /// For each example, classes with their scores.
    pub results: Vec<Vec<(String, f64)>>,
}

/// The numbers of examples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TfsRegressAnswer")]
pub struct TfsRegressResponse {
    /// A number for each example.
    pub results: Vec<f64>,
}
