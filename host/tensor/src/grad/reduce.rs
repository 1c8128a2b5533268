//! Adjoints of reductions.

use super::AdjointStep;
use super::emit::{binary, boolean_as_float, dtype_of, expand, fill_like, fold, mul, shape_of};
use crate::NodeId;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{BinaryOp, ReduceKind, ReduceOp, Scalar};

pub(super) fn adjoint(g: &mut GraphBuilder, op: &ReduceOp, step: &AdjointStep) -> Result<Option<NodeId>, GraphError> {
    let (x, dy) = (step.inputs[0], step.output_adjoint);
    match op {
        ReduceOp::Fold { kind: ReduceKind::Sum, axes: _ } => expand(g, dy, x).map(Some),
        ReduceOp::Fold { kind: ReduceKind::Product, axes } => product_adjoint(g, step, axes).map(Some),
        ReduceOp::Fold { kind: ReduceKind::Max | ReduceKind::Min, axes } => extremum_adjoint(g, step, axes).map(Some),
        ReduceOp::ArgMax { axis: _ } | ReduceOp::ArgMin { axis: _ } => Ok(None),
    }
}

/// Returns the output adjoint times the product of the other elements: of those before times those after. So zeros need
/// no division, in any order of differentiation.
fn product_adjoint(g: &mut GraphBuilder, step: &AdjointStep, axes: &[usize]) -> Result<NodeId, GraphError> {
    let x = step.inputs[0];
    let shape = shape_of(g, x).clone();
    let size: usize = axes.iter().map(|&axis| shape[axis]).product();
    if size == 0 {
        return fill_like(g, x, 0.0);
    }
    // Moves the reduced axes to the end and merges them.
    let order: Vec<usize> = (0..shape.rank()).filter(|axis| !axes.contains(axis)).chain(axes.iter().copied()).collect();
    let moved = g.transpose(x, &order)?;
    let dims = shape_of(g, moved).to_vec();
    let rows: usize = dims[..dims.len() - axes.len()].iter().product();
    let flat = g.reshape(moved, &[rows, size])?;
    let before = exclusive_cumulative_products(g, flat, rows, size)?;
    let reversed = g.reverse(flat, &[1])?;
    let after = exclusive_cumulative_products(g, reversed, rows, size)?;
    let after = g.reverse(after, &[1])?;
    let others = mul(g, before, after)?;
    let moved = g.reshape(others, &dims)?;
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &axis)| inverse[axis] = to);
    let others = g.transpose(moved, &inverse)?;
    let dy = expand(g, step.output_adjoint, x)?;
    mul(g, dy, others)
}

/// Returns, for each element of a row, the product of the elements before it, by steps that double the number of
/// elements covered.
fn exclusive_cumulative_products(
    g: &mut GraphBuilder,
    x: NodeId,
    rows: usize,
    size: usize,
) -> Result<NodeId, GraphError> {
    let shifted = |g: &mut GraphBuilder, x: NodeId, by: usize| {
        let start = g.slice(x, &[0, 0], &[rows, size - by], &[1, 1])?;
        g.pad(start, &[0, by], &[0, 0], Scalar::Float(1.0))
    };
    let mut products = shifted(g, x, 1)?;
    let mut covered = 1;
    while covered < size {
        let earlier = shifted(g, products, covered)?;
        products = mul(g, products, earlier)?;
        covered *= 2;
    }
    Ok(products)
}

/// Returns the output adjoint, divided equally among the elements that equal the result.
fn extremum_adjoint(g: &mut GraphBuilder, step: &AdjointStep, axes: &[usize]) -> Result<NodeId, GraphError> {
    let x = step.inputs[0];
    let y = expand(g, step.output, x)?;
    let chosen = binary(g, BinaryOp::Equal, x, y)?;
    let chosen = boolean_as_float(g, chosen, dtype_of(g, x))?;
    let count = fold(g, ReduceKind::Sum, axes, chosen)?;
    let share = binary(g, BinaryOp::Div, step.output_adjoint, count)?;
    let share = expand(g, share, x)?;
    mul(g, share, chosen)
}
