//! Names of kernels and nodes for errors, traces and profiles.

use saggar_tensor::{Graph, NodeId};

use crate::fuse::Draft;
use crate::limits::LABELS_MAX;
use crate::program::Body;

/// The operator's name, and the node's label or, without one, its number in the simplified graph.
pub(crate) fn op_name(graph: &Graph, node: NodeId) -> (&'static str, String) {
    let label = graph.node(node).label.as_ref().map_or_else(|| format!("node {}", node.0), |label| label.to_string());
    (graph.node(node).op.name(), label)
}

/// The kernel's family and the labels of what it computes.
pub(crate) fn label(graph: &Graph, draft: &Draft) -> String {
    let mut label = String::from(family(&draft.body));
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

/// The kernel family's name.
pub(crate) fn family(body: &Body) -> &'static str {
    match body {
        Body::Map { .. } => "map",
        Body::Fold { .. } => "fold",
        Body::ArgFold { .. } => "arg_fold",
        Body::MatMul { .. } => "matmul",
        Body::Chain { softmax: Some(_), .. } => "attention",
        Body::Chain { softmax: None, .. } => "chain",
        Body::Conv2d { .. } => "conv2d",
        Body::Conv2dInputGrad { .. } => "conv2d_input_grad",
        Body::Conv2dFilterGrad { .. } => "conv2d_filter_grad",
        Body::Pool2d { .. } => "pool2d",
        Body::MaxPool2dGrad { .. } => "max_pool2d_grad",
        Body::SumPool2dGrad { .. } => "sum_pool2d_grad",
        Body::Gather { .. } => "gather",
        Body::Scatter { .. } => "scatter",
    }
}
