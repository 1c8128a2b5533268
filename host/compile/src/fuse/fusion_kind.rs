//! Fusion kinds: how fusion can treat a node, by operator.

use saggar_tensor::op::{ConvolutionOp, IndexOp, Op, ReduceOp, SourceOp};
use saggar_tensor::{Graph, NodeId};

/// How fusion can treat a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FusionKind {
    /// Its elements are in memory before the program runs.
    External,
    /// Computed in the kernels that use it, at this cost in additions per element.
    Elementwise(u32),
    /// Elements of its operands at other positions.
    Movement,
    /// Has a separate kernel; element-wise work on its results can be fused into it.
    Anchor,
    /// Has a separate kernel without fused work.
    Standalone,
}

pub(super) fn fusion_kind(op: &Op) -> FusionKind {
    match op {
        Op::Source(source) => match source {
            SourceOp::Input(_) | SourceOp::Constant(_) | SourceOp::Variable(_) => FusionKind::External,
            SourceOp::Fill(_) | SourceOp::Iota { .. } => FusionKind::Elementwise(0),
            SourceOp::Random { .. } => FusionKind::Elementwise(32),
        },
        Op::Unary(unary) => FusionKind::Elementwise(unary.facts().cost),
        Op::Binary(binary) => FusionKind::Elementwise(binary.facts().cost),
        Op::Select => FusionKind::Elementwise(1),
        Op::Movement(_) => FusionKind::Movement,
        Op::Reduce(ReduceOp::Fold { .. }) | Op::Contract(_) | Op::Convolution(ConvolutionOp::Conv2d(_)) => {
            FusionKind::Anchor
        }
        Op::Reduce(ReduceOp::ArgMax { .. } | ReduceOp::ArgMin { .. })
        | Op::Convolution(
            ConvolutionOp::Conv2dInputGrad { .. }
            | ConvolutionOp::Conv2dFilterGrad { .. }
            | ConvolutionOp::Pool2d { .. }
            | ConvolutionOp::MaxPool2dGrad(_)
            | ConvolutionOp::SumPool2dGrad { .. },
        )
        | Op::Index(IndexOp::Gather { .. } | IndexOp::ScatterAdd { .. } | IndexOp::Scatter { .. }) => {
            FusionKind::Standalone
        }
    }
}

/// Returns the node that owns the dense elements of `node`: `node` without its outer reshapes.
pub(crate) fn reshape_base(graph: &Graph, mut node: NodeId) -> NodeId {
    while graph.node(node).op.is_reshape() {
        node = graph.node(node).inputs[0];
    }
    node
}

/// Returns whether the node's elements are in memory before the program runs.
pub(crate) fn is_external(graph: &Graph, node: NodeId) -> bool {
    fusion_kind(&graph.node(node).op) == FusionKind::External
}

/// Returns the variable whose old value the node is, or `None` if it is another node.
pub(crate) fn read_variable(graph: &Graph, node: NodeId) -> Option<u32> {
    graph.node(node).op.variable()
}
