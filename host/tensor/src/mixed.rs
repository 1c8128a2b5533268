//! Mixed precision: a training step whose products of matrices and convolutions take `float16`, and nothing else does.
//!
//! Operands of those contractions are rounded to `float16` where they enter, sums are accumulated in `float32` and rounded
//! once, and the result is widened again. Variables, losses, normalisations, reductions and updates stay `float32`: the
//! variables are the master weights, which are rounded once a step however many contractions read them.
//!
//! Small gradients would vanish in `float16`, so gradients are taken of the loss times a scale and divided by it in
//! `float32` before anybody sees them ([`gradients`]). A step in which a gradient overflowed is left out, and the scale
//! finds its size by itself ([`leave_out`], [`advance`]). Both are part of the step's graph.
//!
//! The contractions are exchanged last, in the finished graph ([`halve`]), forward ones and adjoints alike: the adjoint of
//! a rounding rounds, so exchanging before gradients are taken would give the same graph.
//!
//! Source: Micikevicius et al., "Mixed Precision Training", ICLR 2018, arXiv:1710.03740.

mod halve;
mod scale;

use std::collections::BTreeSet;

use crate::DType;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::grad;
use crate::graph::{Graph, NodeId};
use crate::interrupt::Interrupt;
use crate::op::{Convolution, Op};
use crate::shards::needed;

pub use halve::halve;
pub use scale::{
    GROWTH_STEPS, LossScale, SCALE_BACKOFF, SCALE_FIRST, SCALE_GROWTH, SCALE_LEAST, SCALE_MOST, advance, leave_out,
};

/// The gradients that were taken in one graph.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Contractions that a loss depends on, and those of their gradients.
    contractions: BTreeSet<NodeId>,
    /// What is looked at: a step in which one of them is not finite is left out.
    gradients: Vec<NodeId>,
}

impl Taken {
    /// Whether none was scaled: there is nothing to exchange, and nothing to look at.
    pub fn is_empty(&self) -> bool {
        self.contractions.is_empty()
    }

    /// The contractions that [`halve`] is to exchange.
    pub fn contractions(&self) -> &BTreeSet<NodeId> {
        &self.contractions
    }

    /// The gradients that decide whether a step is sound.
    pub fn gradients(&self) -> &[NodeId] {
        &self.gradients
    }

    /// Has these gradients decide too.
    pub fn look_at(&mut self, gradients: &[NodeId]) {
        self.gradients.extend(gradients);
    }
}

/// As [`grad::gradients`], computed of `loss` times `scale` and divided by it at the end, in `float32`. The loss itself is
/// not changed. Where the loss is `float16`, or depends on no contraction that would be exchanged, its gradients are as ever:
/// such a graph is of one precision, or its builder chose both precision and scale.
///
/// `scale` is a `float32` without dimensions; [`LossScale::scale`]. Stops when `interrupt` comes.
///
/// # Errors
/// As [`grad::gradients_times`].
pub fn gradients(
    builder: &mut GraphBuilder,
    taken: &mut Taken,
    scale: NodeId,
    loss: NodeId,
    wrt: &[NodeId],
    interrupt: &Interrupt<'_>,
) -> Result<Vec<NodeId>, GraphError> {
    let is_single = builder.descriptor_of(loss)?.dtype == DType::F32;
    let graph = builder.graph();
    let forward = halve::exchanged(graph, contractions(graph, &needed(graph, &[loss])));
    if !is_single || forward.is_empty() {
        return grad::gradients_times(builder, loss, None, wrt, interrupt);
    }
    let before = builder.graph().nodes.len();
    let mut gradients = grad::gradients_times(builder, loss, Some(scale), wrt, interrupt)?;
    let graph = builder.graph();
    let is_new: Vec<bool> = (0..graph.nodes.len()).map(|at| at >= before).collect();
    taken.contractions.extend(forward.into_iter().chain(contractions(graph, &is_new)));
    let inverse = builder.reciprocal(scale)?;
    for gradient in &mut gradients {
        *gradient = divided(builder, *gradient, inverse)?;
    }
    Ok(gradients)
}

/// `gradient` times `inverse`, computed in `float32`, in the gradient's data type.
fn divided(builder: &mut GraphBuilder, gradient: NodeId, inverse: NodeId) -> Result<NodeId, GraphError> {
    let dtype = builder.descriptor_of(gradient)?.dtype;
    let wide = builder.cast(gradient, DType::F32)?;
    let divided = builder.mul(wide, inverse)?;
    builder.cast(divided, dtype)
}

fn contractions<'a>(graph: &'a Graph, among: &'a [bool]) -> impl Iterator<Item = NodeId> + 'a {
    let chosen =
        |(at, node): (usize, &crate::Node)| (among[at] && is_contraction(&node.op)).then_some(NodeId(at as u32));
    graph.nodes.iter().enumerate().filter_map(chosen)
}

/// Whether it is a sum of products of two operands.
fn is_contraction(op: &Op) -> bool {
    match op {
        Op::Contract(_) => true,
        Op::Convolution(op) => match op {
            Convolution::Conv2d(_) | Convolution::Conv2dInputGrad { .. } | Convolution::Conv2dFilterGrad { .. } => true,
            Convolution::Pool2d { .. } | Convolution::MaxPool2dGrad(_) | Convolution::SumPool2dGrad { .. } => false,
        },
        Op::Source(_) | Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Reduce(_) | Op::Movement(_) | Op::Index(_) => {
            false
        }
    }
}

#[cfg(test)]
mod tests;
