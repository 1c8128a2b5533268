//! Mixed precision: a training step whose matrix products and convolutions use `float16`, and everything else
//! `float32`.
//!
//! Operands of these contractions are rounded to `float16`, sums are accumulated in `float32` and rounded once, and the
//! result is widened again. Variables, losses, normalizations, reductions and updates stay `float32`. The variables are
//! the master weights; each is rounded once per step, however many contractions read it.
//!
//! Small gradients would underflow in `float16`. So gradients are computed for the loss times a scale, and divided by
//! the scale in `float32` before they are used ([`scaled_loss_gradients`]). A step with an overflowed gradient is
//! skipped, and the scale adjusts automatically ([`skip_nonfinite_step`], [`update_loss_scale`]). Both are part of the
//! step's graph.
//!
//! The contractions are replaced last, in the finished graph ([`autocast_to_f16`]), forward ones and adjoints alike.
//! Replacing them before gradients are computed would give the same graph, because the adjoint of a rounding rounds.
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

pub use autocast::autocast_to_f16;
pub use loss_scale::{
    LOSS_SCALE_BACKOFF_FACTOR, LOSS_SCALE_GROWTH_FACTOR, LOSS_SCALE_GROWTH_INTERVAL, LOSS_SCALE_INITIAL,
    LOSS_SCALE_MAX, LOSS_SCALE_MIN, LossScaleNodes, skip_nonfinite_step, update_loss_scale,
};

/// The scaled gradients of one graph.
#[derive(Clone, Debug, Default)]
pub struct ScaledGradients {
    /// Contractions that a loss depends on, and those of its gradients.
    contractions: BTreeSet<NodeId>,
    /// Checked gradients: a step in which one of them is not finite is skipped.
    gradients: Vec<NodeId>,
}

impl ScaledGradients {
    /// Returns whether no gradient was scaled: there is no contraction to replace, and no gradient to check.
    pub fn is_empty(&self) -> bool {
        self.contractions.is_empty()
    }

    /// Returns the contractions that [`autocast_to_f16`] must replace.
    pub fn contractions(&self) -> &BTreeSet<NodeId> {
        &self.contractions
    }

    /// Returns the gradients that are checked for non-finite values.
    pub fn checked_gradients(&self) -> &[NodeId] {
        &self.gradients
    }

    /// Adds gradients to the checked ones.
    pub fn add_checked_gradients(&mut self, gradients: &[NodeId]) {
        self.gradients.extend(gradients);
    }
}

/// Computes gradients as [`grad::gradients`] does, but of `loss` times `scale`, and divides them by `scale` at the end
/// in `float32`. The loss itself is not changed. The gradients are not scaled if the loss is `float16`, or depends on
/// no contraction that would be replaced: the graph then has one precision, or its builder chose both precision and
/// scale.
///
/// `scale` is a `float32` without dimensions; see [`LossScaleNodes::scale`]. Stops when `interrupt` fires.
///
/// # Errors
/// As [`grad::scaled_gradients`].
pub fn scaled_loss_gradients(
    builder: &mut GraphBuilder,
    scaled_gradients: &mut ScaledGradients,
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
    scaled_gradients.contractions.extend(forward.into_iter().chain(contraction_nodes(graph, &is_new)));
    let inverse = builder.reciprocal(scale)?;
    for gradient in &mut gradients {
        *gradient = multiply_in_f32(builder, *gradient, inverse)?;
    }
    Ok(gradients)
}

/// Returns `gradient` times `inverse`, computed in `float32`, in the gradient's data type.
fn multiply_in_f32(builder: &mut GraphBuilder, gradient: NodeId, inverse: NodeId) -> Result<NodeId, GraphError> {
    let dtype = builder.descriptor_of(gradient)?.dtype;
    let wide = builder.cast(gradient, DType::F32)?;
    let divided = builder.mul(wide, inverse)?;
    builder.cast(divided, dtype)
}

fn contraction_nodes<'a>(graph: &'a Graph, among: &'a [bool]) -> impl Iterator<Item = NodeId> + 'a {
    let chosen =
        |(at, node): (usize, &crate::GraphNode)| (among[at] && node.op.is_contraction()).then_some(NodeId(at as u32));
    graph.nodes.iter().enumerate().filter_map(chosen)
}

#[cfg(test)]
mod tests;
