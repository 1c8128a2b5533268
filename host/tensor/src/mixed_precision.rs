//! Mixed precision: a training step whose products of matrices and convolutions take `float16`, and nothing else does.
//!
//! Operands of those contractions are rounded to `float16` where they enter, sums are accumulated in `float32` and rounded
//! once, and the result is widened again. Variables, losses, normalisations, reductions and updates stay `float32`: the
//! variables are the master weights, which are rounded once a step however many contractions read them.
//!
//! Small gradients would vanish in `float16`, so gradients are taken of the loss times a scale and divided by it in
//! `float32` before anybody sees them ([`gradients`]). A step in which a gradient overflowed is left out, and the scale
//! finds its size by itself ([`skip_nonfinite_step`], [`update_loss_scale`]). Both are part of the step's graph.
//!
//! The contractions are exchanged last, in the finished graph ([`halve`]), forward ones and adjoints alike: the adjoint of
//! a rounding rounds, so exchanging before gradients are taken would give the same graph.
//!
//! Source: Micikevicius et al., "Mixed Precision Training", ICLR 2018, arXiv:1710.03740.

mod autocast;
mod loss_scale;

use std::collections::BTreeSet;

use crate::DType;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::grad;
use crate::graph::{Graph, NodeId};
use crate::interrupt::InterruptCheck;
use crate::micro_batches::ancestors;
use crate::op::{ConvolutionOp, Op};

pub use autocast::autocast_to_f16;
pub use loss_scale::{
    LOSS_SCALE_BACKOFF_FACTOR, LOSS_SCALE_GROWTH_FACTOR, LOSS_SCALE_GROWTH_INTERVAL, LOSS_SCALE_INITIAL,
    LOSS_SCALE_MAX, LOSS_SCALE_MIN, LossScaleNodes, skip_nonfinite_step, update_loss_scale,
};

/// The gradients that were taken in one graph.
#[derive(Clone, Debug, Default)]
pub struct ScaledGradients {
    /// Contractions that a loss depends on, and those of their gradients.
    contractions: BTreeSet<NodeId>,
    /// What is looked at: a step in which one of them is not finite is left out.
    gradients: Vec<NodeId>,
}

impl ScaledGradients {
    /// Whether none was scaled: there is nothing to exchange, and nothing to look at.
    pub fn is_empty(&self) -> bool {
        self.contractions.is_empty()
    }

    /// The contractions that [`halve`] is to exchange.
    pub fn contractions(&self) -> &BTreeSet<NodeId> {
        &self.contractions
    }

    /// The gradients that decide whether a step is sound.
    pub fn checked_gradients(&self) -> &[NodeId] {
        &self.gradients
    }

    /// Has these gradients decide too.
    pub fn add_checked_gradients(&mut self, gradients: &[NodeId]) {
        self.gradients.extend(gradients);
    }
}

/// As [`grad::gradients`], computed of `loss` times `scale` and divided by it at the end, in `float32`. The loss itself is
/// not changed. Where the loss is `float16`, or depends on no contraction that would be exchanged, its gradients are as ever:
/// such a graph is of one precision, or its builder chose both precision and scale.
///
/// `scale` is a `float32` without dimensions; [`LossScaleNodes::loss_scale`]. Stops when `interrupt` comes.
///
/// # Errors
/// As [`grad::scaled_gradients`].
pub fn scaled_loss_gradients(
    builder: &mut GraphBuilder,
    taken: &mut ScaledGradients,
    scale: NodeId,
    loss: NodeId,
    wrt: &[NodeId],
    interrupt: &InterruptCheck<'_>,
) -> Result<Vec<NodeId>, GraphError> {
    let is_single = builder.descriptor_of(loss)?.dtype == DType::F32;
    let graph = builder.graph();
    let forward = autocast::autocast_contractions(graph, contraction_nodes(graph, &ancestors(graph, &[loss])));
    if !is_single || forward.is_empty() {
        return grad::scaled_gradients(builder, loss, None, wrt, interrupt);
    }
    let before = builder.graph().nodes.len();
    let mut gradients = grad::scaled_gradients(builder, loss, Some(scale), wrt, interrupt)?;
    let graph = builder.graph();
    let is_new: Vec<bool> = (0..graph.nodes.len()).map(|at| at >= before).collect();
    taken.contractions.extend(forward.into_iter().chain(contraction_nodes(graph, &is_new)));
    let inverse = builder.reciprocal(scale)?;
    for gradient in &mut gradients {
        *gradient = multiply_in_f32(builder, *gradient, inverse)?;
    }
    Ok(gradients)
}

/// `gradient` times `inverse`, computed in `float32`, in the gradient's data type.
fn multiply_in_f32(builder: &mut GraphBuilder, gradient: NodeId, inverse: NodeId) -> Result<NodeId, GraphError> {
    let dtype = builder.descriptor_of(gradient)?.dtype;
    let wide = builder.cast(gradient, DType::F32)?;
    let divided = builder.mul(wide, inverse)?;
    builder.cast(divided, dtype)
}

fn contraction_nodes<'a>(graph: &'a Graph, among: &'a [bool]) -> impl Iterator<Item = NodeId> + 'a {
    let chosen =
        |(at, node): (usize, &crate::GraphNode)| (among[at] && is_contraction(&node.op)).then_some(NodeId(at as u32));
    graph.nodes.iter().enumerate().filter_map(chosen)
}

/// Whether it is a sum of products of two operands.
fn is_contraction(op: &Op) -> bool {
    match op {
        Op::Contract(_) => true,
        Op::Convolution(op) => match op {
            ConvolutionOp::Conv2d(_)
            | ConvolutionOp::Conv2dInputGrad { .. }
            | ConvolutionOp::Conv2dFilterGrad { .. } => true,
            ConvolutionOp::Pool2d { .. } | ConvolutionOp::MaxPool2dGrad(_) | ConvolutionOp::SumPool2dGrad { .. } => {
                false
            }
        },
        Op::Source(_) | Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Reduce(_) | Op::Movement(_) | Op::Index(_) => {
            false
        }
    }
}

#[cfg(test)]
mod tests;
