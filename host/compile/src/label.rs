//! Names of kernels and nodes for errors, traces and profiles.

use saggar_tensor::{Graph, NodeId};

use crate::fuse::KernelDraft;
use crate::limits::LABELS_MAX;
use crate::program::KernelBody;

/// Returns the operator's name, and the node's label or, without one, its number in the simplified graph.
pub(crate) fn op_name(graph: &Graph, node: NodeId) -> (&'static str, String) {
    let label = graph.node(node).label.as_ref().map_or_else(|| format!("node {}", node.0), |label| label.to_string());
    (graph.node(node).op.name(), label)
}

/// Returns a kernel's family and the labels of the nodes that it computes.
pub(crate) fn kernel_label(graph: &Graph, draft: &KernelDraft) -> String {
    let mut label = String::from(draft.body.family());
    let mut named: Vec<&str> = Vec::new();
    for node in draft.anchor.iter().chain(&draft.roots) {
        if let Some(name) = graph.node(*node).label.as_deref()
            && !named.contains(&name)
            && named.len() < LABELS_MAX
        {
            named.push(name);
        }
    }
    for (at, name) in named.iter().enumerate() {
        label.push_str(if at == 0 { ": " } else { ", " });
        label.push_str(name);
    }
    label
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
