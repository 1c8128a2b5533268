//! Names of nodes and kernel families for errors, traces and profiles.

use saggar_tensor::{Graph, NodeId};

use crate::program::KernelBody;

/// Returns the operator's name, and the node's label or, without one, its number in the simplified graph.
pub(crate) fn op_name(graph: &Graph, node: NodeId) -> (&'static str, String) {
    let label = graph.node(node).label.as_ref().map_or_else(|| format!("node {}", node.0), |label| label.to_string());
    (graph.node(node).op.name(), label)
}

impl KernelBody {
    /// Returns the name of the kernel family, such as `matmul`. The label of a kernel begins with it.
    pub fn family(&self) -> &'static str {
        match self {
            KernelBody::Map { .. } => "map",
            KernelBody::Fold { .. } => "fold",
            KernelBody::ArgFold { .. } => "arg_fold",
            KernelBody::MatMul { .. } => "matmul",
            KernelBody::Chain { softmax: Some(_), .. } => "attention",
            KernelBody::Chain { softmax: None, .. } => "chain",
            KernelBody::Conv2d { .. } => "conv2d",
            KernelBody::Conv2dInputGrad { .. } => "conv2d_input_grad",
            KernelBody::Conv2dFilterGrad { .. } => "conv2d_filter_grad",
            KernelBody::Pool2d { .. } => "pool2d",
            KernelBody::MaxPool2dGrad { .. } => "max_pool2d_grad",
            KernelBody::SumPool2dGrad { .. } => "sum_pool2d_grad",
            KernelBody::Gather { .. } => "gather",
            KernelBody::Scatter { .. } => "scatter",
        }
    }
}
