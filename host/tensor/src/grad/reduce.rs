//! Adjoints of reductions.

use super::Step;
use super::emit::{binary, dtype_of, expand, fold, like, mul, select, truth};
use crate::NodeId;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{Binary, Reduce, ReduceKind};

pub(super) fn adjoint(g: &mut GraphBuilder, op: &Reduce, step: &Step) -> Result<Option<NodeId>, GraphError> {
    let (x, dy) = (step.inputs[0], step.dy);
    match op {
        Reduce::Fold { kind: ReduceKind::Sum, axes: _ } => expand(g, dy, x).map(Some),
        Reduce::Fold { kind: ReduceKind::Product, axes } => product(g, step, axes).map(Some),
        Reduce::Fold { kind: ReduceKind::Max | ReduceKind::Min, axes } => extremum(g, step, axes).map(Some),
        Reduce::ArgMax { axis: _ } | Reduce::ArgMin { axis: _ } => Ok(None),
    }
}

/// `dy` times the product of the other elements: the whole product over the element, except around zeros. Among
/// elements with one zero only the zero has a slope, and with more of them none has.
fn product(g: &mut GraphBuilder, step: &Step, axes: &[usize]) -> Result<NodeId, GraphError> {
    let x = step.inputs[0];
    let (zero, one) = (like(g, x, 0.0)?, like(g, x, 1.0)?);
    let is_zero = binary(g, Binary::Equal, x, zero)?;
    let nonzero = select(g, is_zero, one, x)?;
    let nonzero_product = fold(g, ReduceKind::Product, axes, nonzero)?;
    let nonzero_product = expand(g, nonzero_product, x)?;
    let zeros = truth(g, is_zero, dtype_of(g, x))?;
    let zeros = fold(g, ReduceKind::Sum, axes, zeros)?;
    let zeros = expand(g, zeros, x)?;
    let no_zero = binary(g, Binary::Equal, zeros, zero)?;
    let one_zero = binary(g, Binary::Equal, zeros, one)?;
    let others = binary(g, Binary::Div, nonzero_product, nonzero)?;
    let at_nonzero = select(g, no_zero, others, zero)?;
    let at_zero = select(g, one_zero, nonzero_product, zero)?;
    let slope = select(g, is_zero, at_zero, at_nonzero)?;
    let dy = expand(g, step.dy, x)?;
    mul(g, dy, slope)
}

/// `dy` divided equally among the elements that equal the result.
fn extremum(g: &mut GraphBuilder, step: &Step, axes: &[usize]) -> Result<NodeId, GraphError> {
    let x = step.inputs[0];
    let y = expand(g, step.output, x)?;
    let chosen = binary(g, Binary::Equal, x, y)?;
    let chosen = truth(g, chosen, dtype_of(g, x))?;
    let count = fold(g, ReduceKind::Sum, axes, chosen)?;
    let share = binary(g, Binary::Div, step.dy, count)?;
    let share = expand(g, share, x)?;
    mul(g, share, chosen)
}
