//! The messages of the Open Inference Protocol over gRPC, except requests for predictions, which
//! [`infer_request`](super::infer_request) reads in place. The fields are those of `host/serve/proto`. Empty messages
//! are `()`.
//!
//! The types derive `prost::Message`, so that no code is generated.

use std::collections::HashMap;

use prost::{Message, Oneof};

/// A request about a model, or about one of its versions.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelVersionRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// Empty for the version that default requests use.
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

/// The response of `ServerLive`, `ServerReady` and `ModelReady`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadyResponse {
    #[prost(bool, tag = "1")]
    pub(super) ready: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServerMetadataResponse {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) extensions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelMetadataResponse {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) versions: Vec<String>,
    #[prost(string, tag = "3")]
    pub(super) platform: String,
    #[prost(message, repeated, tag = "4")]
    pub(super) inputs: Vec<TensorDescription>,
    #[prost(message, repeated, tag = "5")]
    pub(super) outputs: Vec<TensorDescription>,
}

/// A tensor without its elements: in the metadata of a model, and in a response to a prediction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorDescription {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub(super) shape: Vec<i64>,
}

/// A response to a prediction without the elements of its outputs, which follow as further fields.
#[derive(Clone, PartialEq, Message)]
pub(super) struct InferResponseHead {
    #[prost(string, tag = "1")]
    pub(super) model_name: String,
    #[prost(string, tag = "2")]
    pub(super) model_version: String,
    #[prost(string, tag = "3")]
    pub(super) id: String,
    #[prost(map = "string, message", tag = "4")]
    pub(super) parameters: HashMap<String, InferParameter>,
    #[prost(message, repeated, tag = "5")]
    pub(super) outputs: Vec<TensorDescription>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InferParameter {
    #[prost(oneof = "InferParameterValue", tags = "1, 2, 3, 4, 5")]
    pub(super) value: Option<InferParameterValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum InferParameterValue {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(int64, tag = "2")]
    Int64(i64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(uint64, tag = "5")]
    Uint64(u64),
}

/// A response of a stream that reports the failure of one request.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StreamErrorResponse {
    #[prost(string, tag = "1")]
    pub(super) error_message: String,
    #[prost(message, optional, tag = "2")]
    pub(super) infer_response: Option<InferResponseHead>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelConfigResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) config: Option<ModelConfigMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ModelConfigMessage {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) platform: String,
    #[prost(int32, tag = "4")]
    pub(super) max_batch_size: i32,
    #[prost(message, repeated, tag = "5")]
    pub(super) input: Vec<InputConfig>,
    #[prost(message, repeated, tag = "6")]
    pub(super) output: Vec<OutputConfig>,
    #[prost(message, optional, tag = "11")]
    pub(super) dynamic_batching: Option<DynamicBatchingConfig>,
    #[prost(map = "string, message", tag = "14")]
    pub(super) parameters: HashMap<String, ModelParameter>,
    #[prost(string, tag = "17")]
    pub(super) backend: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InputConfig {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(int32, tag = "2")]
    pub(super) data_type: i32,
    #[prost(int64, repeated, tag = "4")]
    pub(super) dims: Vec<i64>,
    #[prost(bool, tag = "8")]
    pub(super) optional: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OutputConfig {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(int32, tag = "2")]
    pub(super) data_type: i32,
    #[prost(int64, repeated, tag = "3")]
    pub(super) dims: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DynamicBatchingConfig {
    #[prost(uint64, tag = "2")]
    pub(super) max_queue_delay_microseconds: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ModelParameter {
    #[prost(string, tag = "1")]
    pub(super) string_value: String,
}

/// The data types of a configuration, by their numbers.
pub(super) const CONFIG_DATATYPES: [&str; 15] = [
    "TYPE_INVALID",
    "TYPE_BOOL",
    "TYPE_UINT8",
    "TYPE_UINT16",
    "TYPE_UINT32",
    "TYPE_UINT64",
    "TYPE_INT8",
    "TYPE_INT16",
    "TYPE_INT32",
    "TYPE_INT64",
    "TYPE_FP16",
    "TYPE_FP32",
    "TYPE_FP64",
    "TYPE_STRING",
    "TYPE_BF16",
];

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelStatisticsResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) model_stats: Vec<VersionStatisticsMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionStatisticsMessage {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(uint64, tag = "3")]
    pub(super) last_inference: u64,
    #[prost(uint64, tag = "4")]
    pub(super) inference_count: u64,
    #[prost(uint64, tag = "5")]
    pub(super) execution_count: u64,
    #[prost(message, optional, tag = "6")]
    pub(super) inference_stats: Option<InferenceStatisticsMessage>,
    #[prost(message, repeated, tag = "7")]
    pub(super) batch_stats: Vec<BatchStatisticsMessage>,
    #[prost(message, repeated, tag = "8")]
    pub(super) memory_usage: Vec<MemoryUsageMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InferenceStatisticsMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) success: Option<DurationMessage>,
    #[prost(message, optional, tag = "2")]
    pub(super) fail: Option<DurationMessage>,
    #[prost(message, optional, tag = "3")]
    pub(super) queue: Option<DurationMessage>,
    #[prost(message, optional, tag = "4")]
    pub(super) compute_input: Option<DurationMessage>,
    #[prost(message, optional, tag = "5")]
    pub(super) compute_infer: Option<DurationMessage>,
    #[prost(message, optional, tag = "6")]
    pub(super) compute_output: Option<DurationMessage>,
    #[prost(message, optional, tag = "7")]
    pub(super) cache_hit: Option<DurationMessage>,
    #[prost(message, optional, tag = "8")]
    pub(super) cache_miss: Option<DurationMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DurationMessage {
    #[prost(uint64, tag = "1")]
    pub(super) count: u64,
    #[prost(uint64, tag = "2")]
    pub(super) ns: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BatchStatisticsMessage {
    #[prost(uint64, tag = "1")]
    pub(super) batch_size: u64,
    #[prost(message, optional, tag = "2")]
    pub(super) compute_input: Option<DurationMessage>,
    #[prost(message, optional, tag = "3")]
    pub(super) compute_infer: Option<DurationMessage>,
    #[prost(message, optional, tag = "4")]
    pub(super) compute_output: Option<DurationMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MemoryUsageMessage {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(uint64, tag = "3")]
    pub(super) byte_size: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RepositoryIndexRequest {
    #[prost(string, tag = "1")]
    pub(super) repository_name: String,
    #[prost(bool, tag = "2")]
    pub(super) ready: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RepositoryIndexResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) models: Vec<ModelIndexItem>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ModelIndexItem {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(string, tag = "3")]
    pub(super) state: String,
    #[prost(string, tag = "4")]
    pub(super) reason: String,
}

/// The request of `RepositoryModelLoad` and `RepositoryModelUnload`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RepositoryModelRequest {
    #[prost(string, tag = "1")]
    pub(super) repository_name: String,
    #[prost(string, tag = "2")]
    pub(super) model_name: String,
    #[prost(map = "string, message", tag = "3")]
    pub(super) parameters: HashMap<String, RepositoryParameter>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RepositoryParameter {
    #[prost(oneof = "RepositoryParameterValue", tags = "1, 2, 3, 4")]
    pub(super) value: Option<RepositoryParameterValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum RepositoryParameterValue {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(int64, tag = "2")]
    Int64(i64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bytes = "vec", tag = "4")]
    Bytes(Vec<u8>),
}
