//! `GET /api/v1/models/{model}/versions/{version}/graph`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kernels that compute a version of a model, in execution order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ModelGraph")]
pub struct ModelGraphDocument {
    /// The model.
    pub model: String,
    /// The version.
    pub version: u64,
    /// All graphs of the version, one for each batch size.
    pub graphs: Vec<ModelGraphSummary>,
    /// The number of the graph that is described, from 1.
    pub graph: usize,
    /// The inputs of the graph.
    pub inputs: Vec<GraphTensorDocument>,
    /// The outputs of the graph.
    pub outputs: Vec<GraphTensorDocument>,
    /// The kernels of the graph for the processor.
    pub kernels: Vec<GraphKernelDocument>,
}

/// A graph of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ModelGraphSummary")]
pub struct ModelGraphSummary {
    /// Its number, from 1.
    pub graph: usize,
    /// What builds it, such as `prediction`.
    pub phase: String,
    /// The number of its operators.
    pub nodes: usize,
    /// The number of its kernels; 0 if it cannot be compiled.
    pub kernels: usize,
    /// Bytes of memory that it takes, with weights, inputs and outputs.
    pub total_bytes: u64,
    /// Its inputs.
    pub inputs: Vec<GraphTensorDocument>,
}

/// A named tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "GraphTensor")]
pub struct GraphTensorDocument {
    /// Its name.
    pub name: String,
    /// Its data type, such as `float32`.
    pub data_type: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// A kernel: operators that are computed at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "GraphKernel")]
pub struct GraphKernelDocument {
    /// Its family and the plugin's labels of its operators, such as `conv2d conv1`.
    pub label: String,
    /// The indices of the kernels whose results it reads, from 0.
    pub after: Vec<usize>,
    /// Operations on elements.
    pub operations: u64,
    /// Bytes that it reads and writes.
    pub bytes: u64,
    /// Its operators.
    pub nodes: Vec<GraphNodeDocument>,
    /// The operators whose results it writes to memory, as indices of `nodes`.
    pub writes: Vec<usize>,
}

/// An operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "GraphNode")]
pub struct GraphNodeDocument {
    /// The operator, such as `conv2d`.
    pub op: String,
    /// The plugin's label, if it has one.
    pub label: Option<String>,
    /// The data type of its result.
    pub data_type: String,
    /// The shape of its result.
    pub shape: Vec<usize>,
}
