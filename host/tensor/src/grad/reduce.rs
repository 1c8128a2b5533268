//! Adjoints of reductions.

use super::Step;
use super::emit::{binary, dtype_of, expand, fold, like, mul, shape_of, truth};
use crate::NodeId;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{Binary, Reduce, ReduceKind, Scalar};

pub(super) fn adjoint(g: &mut GraphBuilder, op: &Reduce, step: &Step) -> Result<Option<NodeId>, GraphError> {
    let (x, dy) = (step.inputs[0], step.dy);
    match op {
        Reduce::Fold { kind: ReduceKind::Sum, axes: _ } => expand(g, dy, x).map(Some),
        Reduce::Fold { kind: ReduceKind::Product, axes } => product(g, step, axes).map(Some),
        Reduce::Fold { kind: ReduceKind::Max | ReduceKind::Min, axes } => extremum(g, step, axes).map(Some),
        Reduce::ArgMax { axis: _ } | Reduce::ArgMin { axis: _ } => Ok(None),
    }
}

/// `dy` times the product of the other elements: of those before times those after, so that zeros need no division, in
/// any order of differentiation.
fn product(g: &mut GraphBuilder, step: &Step, axes: &[usize]) -> Result<NodeId, GraphError> {
    let x = step.inputs[0];
    let shape = shape_of(g, x).clone();
    let size: usize = axes.iter().map(|&axis| shape[axis]).product();
    if size == 0 {
        return like(g, x, 0.0);
    }
    // Reduced axes last, as one.
    let order: Vec<usize> = (0..shape.rank()).filter(|axis| !axes.contains(axis)).chain(axes.iter().copied()).collect();
    let moved = g.transpose(x, &order)?;
    let dims = shape_of(g, moved).to_vec();
    let rows: usize = dims[..dims.len() - axes.len()].iter().product();
    let flat = g.reshape(moved, &[rows, size])?;
    let before = products_before(g, flat, rows, size)?;
    let reversed = g.reverse(flat, &[1])?;
    let after = products_before(g, reversed, rows, size)?;
    let after = g.reverse(after, &[1])?;
    let others = mul(g, before, after)?;
    let moved = g.reshape(others, &dims)?;
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &axis)| inverse[axis] = to);
    let others = g.transpose(moved, &inverse)?;
    let dy = expand(g, step.dy, x)?;
    mul(g, dy, others)
}

/// For each element of a row the product of those before it, in steps that double how many are covered.
fn products_before(g: &mut GraphBuilder, x: NodeId, rows: usize, size: usize) -> Result<NodeId, GraphError> {
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
