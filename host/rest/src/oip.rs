//! The documents of the Open Inference Protocol, version 2, below `/v2`, with Triton's extensions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The pattern of the names of data types.
const DATATYPE_PATTERN: &str = "^(BOOL|U?INT(8|16|32|64)|FP(16|32|64)|BF16|BYTES)$";

/// The server's name, version and extensions of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipServer")]
pub struct OipServerDocument {
    /// Always `saggar`.
    pub name: String,
    /// The version.
    pub version: String,
    /// The optional extensions that it supports.
    pub extensions: Vec<String>,
}

/// Whether the process answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipLive")]
pub struct OipLiveDocument {
    /// Always true.
    pub live: bool,
}

/// Whether every model is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipReady")]
pub struct OipReadyDocument {
    /// Whether it is.
    pub ready: bool,
}

/// Whether a model is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipModelReady")]
pub struct OipModelReadyDocument {
    /// The model's name.
    pub name: String,
    /// Whether it is. A sleeping model is ready: a request loads it.
    pub ready: bool,
}

/// The inputs and outputs of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipModel")]
pub struct OipModelDocument {
    /// Its name.
    pub name: String,
    /// Its versions that are ready.
    pub versions: Vec<String>,
    /// Always `saggar_wasm`.
    pub platform: String,
    /// Its inputs.
    pub inputs: Vec<OipTensorDocument>,
    /// Its outputs.
    pub outputs: Vec<OipTensorDocument>,
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipTensor")]
pub struct OipTensorDocument {
    /// Its name.
    pub name: String,
    /// Its data type.
    pub datatype: String,
    /// Its shape. The first dimension is -1 if items can be batched.
    pub shape: Vec<i64>,
}

/// The configuration of a model, in the fields of Triton's ModelConfig.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipModelConfig")]
pub struct OipConfigDocument {
    /// Its name.
    pub name: String,
    /// Always `saggar_wasm`.
    pub platform: String,
    /// Always `saggar`.
    pub backend: String,
    /// The batch size up to which requests are batched; 0 if items cannot be batched.
    pub max_batch_size: usize,
    /// How requests are batched.
    pub dynamic_batching: OipBatchingDocument,
    /// Its inputs.
    pub input: Vec<OipTensorConfig>,
    /// Its outputs.
    pub output: Vec<OipTensorConfig>,
    /// The parameter `saggar`: the text that a load accepts as its `config`.
    pub parameters: OipConfigParameters,
}

/// How requests are batched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipBatching")]
pub struct OipBatchingDocument {
    /// The maximum time that a request waits for others.
    pub max_queue_delay_microseconds: u64,
}

/// An input or output in a model's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipTensorConfig")]
pub struct OipTensorConfig {
    /// Its name.
    pub name: String,
    /// Its data type, such as `TYPE_FP32`.
    pub data_type: String,
    /// Its shape, without the dimension of the batch.
    pub dims: Vec<usize>,
    /// Whether an input can be omitted. Not in outputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// The parameters of a model's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipConfigParameters")]
pub struct OipConfigParameters {
    /// How it is served.
    pub saggar: OipStringParameter,
}

/// A parameter that is text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipStringParameter")]
pub struct OipStringParameter {
    /// The text.
    pub string_value: String,
}

/// An inference request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipRequest")]
pub struct OipInferRequest {
    /// An identifier that the response repeats.
    #[serde(default)]
    #[schemars(with = "String")]
    pub id: Option<String>,
    /// Parameters of the request.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// The inputs.
    pub inputs: Vec<OipInputTensor>,
    /// The outputs to return; all if omitted.
    #[serde(default)]
    pub outputs: Vec<OipRequestedOutput>,
}

/// An input of an inference request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipInput")]
pub struct OipInputTensor {
    /// The input's name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its data type.
    #[schemars(regex(pattern = DATATYPE_PATTERN))]
    pub datatype: String,
    /// Parameters, such as the size of binary data.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// The elements, flat or nested. Omitted for binary data.
    #[serde(default)]
    pub data: Vec<Value>,
}

/// An output that an inference request names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipRequestedOutput")]
pub struct OipRequestedOutput {
    /// The output's name.
    pub name: String,
    /// Parameters, such as `binary_data`.
    #[serde(default)]
    pub parameters: Map<String, Value>,
}

/// The response to an inference request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipAnswer")]
pub struct OipInferResponse {
    /// The model's name.
    pub model_name: String,
    /// The version that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_version: Option<String>,
    /// The identifier of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Parameters of the response.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// The outputs.
    pub outputs: Vec<OipOutputTensor>,
}

/// An output of an inference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipOutput")]
pub struct OipOutputTensor {
    /// The output's name.
    pub name: String,
    /// Its data type.
    pub datatype: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// The elements. Omitted for binary data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<Value>,
    /// Parameters, such as the size of binary data.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
}

/// Statistics of versions since they were loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipStatistics")]
pub struct OipStatisticsDocument {
    /// The versions.
    pub model_stats: Vec<OipVersionStatistics>,
}

/// Statistics of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipVersionStatistics")]
pub struct OipVersionStatistics {
    /// The model's name.
    pub name: String,
    /// The version.
    pub version: String,
    /// When it last answered, in Unix milliseconds; 0 if it never did.
    pub last_inference: u64,
    /// The number of items that it computed.
    pub inference_count: u64,
    /// The number of batches that it computed.
    pub execution_count: u64,
    /// The time of each part of an inference.
    pub inference_stats: OipInferenceStatistics,
    /// Always empty: responses in parts are not counted.
    pub response_stats: Map<String, Value>,
    /// The time of batches by their size.
    pub batch_stats: Vec<OipBatchStatistics>,
    /// The memory that it uses.
    pub memory_usage: Vec<OipMemoryUsage>,
}

/// The time of each part of an inference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipInferenceStatistics")]
pub struct OipInferenceStatistics {
    /// Inferences that succeeded.
    pub success: OipDurationStatistics,
    /// Inferences that failed.
    pub fail: OipDurationStatistics,
    /// Waiting.
    pub queue: OipDurationStatistics,
    /// Decoding inputs.
    pub compute_input: OipDurationStatistics,
    /// Computing.
    pub compute_infer: OipDurationStatistics,
    /// Encoding outputs.
    pub compute_output: OipDurationStatistics,
    /// Answers from the cache.
    pub cache_hit: OipDurationStatistics,
    /// Computed answers that the cache did not have.
    pub cache_miss: OipDurationStatistics,
}

/// A number of events and their time together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipDuration")]
pub struct OipDurationStatistics {
    /// The number.
    pub count: u64,
    /// The nanoseconds.
    pub ns: u64,
}

/// The time of the batches of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipBatchStatistics")]
pub struct OipBatchStatistics {
    /// The number of items of each batch.
    pub batch_size: u64,
    /// Always zero: each request is decoded separately, whatever batch it is computed in.
    pub compute_input: OipDurationStatistics,
    /// Computing.
    pub compute_infer: OipDurationStatistics,
    /// Always zero: each request is encoded separately.
    pub compute_output: OipDurationStatistics,
}

/// The memory that a version uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipMemoryUsage")]
pub struct OipMemoryUsage {
    /// `CPU` or `GPU`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Always 0.
    pub id: u64,
    /// The bytes.
    pub byte_size: u64,
}

/// Selects what the index lists. The body can be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipIndexRequest")]
pub struct OipIndexRequest {
    /// Whether only versions that are ready are listed.
    #[serde(default)]
    pub ready: bool,
}

/// A version of a model, or a model without versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipIndexItem")]
pub struct OipIndexItem {
    /// The model's name.
    pub name: String,
    /// The version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["READY", "LOADING", "UNLOADING", "UNAVAILABLE", "UNKNOWN"]))]
    pub state: Option<String>,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Loads or unloads a model. The body can be empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipRepositoryCommand")]
pub struct OipRepositoryRequest {
    /// `config`, the text of a configuration to set, or `unload_dependents`.
    #[serde(default)]
    pub parameters: Option<Map<String, Value>>,
}

/// The response of a load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipLoaded")]
pub struct OipLoadedDocument {
    /// The model's name.
    pub name: String,
    /// Always true.
    pub load: bool,
}

/// The response of an unload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OipUnloaded")]
pub struct OipUnloadedDocument {
    /// The model's name.
    pub name: String,
    /// Always true.
    pub unload: bool,
}
