//! Adjoints of movements: inverse movements, and sums over repeated elements.

use super::AdjointStep;
use super::emit::{fold, movement, reshape, shape_of};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{MovementOp, ReduceKind, Scalar};
use crate::{NodeId, Shape};

pub(super) fn adjoint(
    g: &mut GraphBuilder,
    op: &MovementOp,
    step: &AdjointStep,
    operand: usize,
) -> Result<Option<NodeId>, GraphError> {
    let (x, dy) = (step.inputs[operand], step.output_adjoint);
    let from = shape_of(g, x).clone();
    let dx = match op {
        MovementOp::Reshape(_) => reshape(g, dy, from)?,
        MovementOp::Broadcast(to) => {
            let repeated: Vec<usize> = (0..to.rank()).filter(|&axis| from[axis] != to[axis]).collect();
            if repeated.is_empty() { dy } else { fold(g, ReduceKind::Sum, &repeated, dy)? }
        }
        MovementOp::Transpose(permutation) => {
            let mut inverse = vec![0; permutation.len()];
            permutation.iter().enumerate().for_each(|(to, &axis)| inverse[axis] = to);
            movement(g, MovementOp::Transpose(inverse), dy)?
        }
        MovementOp::Slice { starts, sizes: _, strides } => slice_adjoint(g, &from, starts, strides, dy)?,
        MovementOp::Reverse(axes) => movement(g, MovementOp::Reverse(axes.clone()), dy)?,
        MovementOp::Pad { low, high: _, value: _ } => take_block(g, dy, low, &from)?,
        MovementOp::Concat { axis } => {
            let before = step.inputs[..operand].iter().map(|&input| shape_of(g, input)[*axis]).sum();
            let mut starts = vec![0; from.rank()];
            starts[*axis] = before;
            take_block(g, dy, &starts, &from)?
        }
    };
    Ok(Some(dx))
}

/// Returns the block of `sizes` at `starts`.
fn take_block(g: &mut GraphBuilder, x: NodeId, starts: &[usize], sizes: &Shape) -> Result<NodeId, GraphError> {
    let strides = vec![1; sizes.rank()];
    movement(g, MovementOp::Slice { starts: starts.to_vec(), sizes: sizes.to_vec(), strides }, x)
}

/// Returns `dy` at the positions that a slice took its elements from, and zeros elsewhere.
fn slice_adjoint(
    g: &mut GraphBuilder,
    from: &Shape,
    starts: &[usize],
    strides: &[usize],
    dy: NodeId,
) -> Result<NodeId, GraphError> {
    let mut spread = dy;
    for (axis, &stride) in strides.iter().enumerate() {
        spread = dilate_axis(g, spread, axis, stride)?;
    }
    let sizes = shape_of(g, spread).clone();
    let high = (0..from.rank()).map(|axis| from[axis] - starts[axis] - sizes[axis]).collect();
    movement(g, MovementOp::Pad { low: starts.to_vec(), high, value: Scalar::Float(0.0) }, spread)
}

/// Inserts `stride - 1` zeros between neighbours along `axis`. In a two-dimensional view, each row holds one element
/// and all elements of the inner axes. Padding the end of the rows puts zeros after every element, and those after the
/// last element are cut off.
fn dilate_axis(g: &mut GraphBuilder, x: NodeId, axis: usize, stride: usize) -> Result<NodeId, GraphError> {
    let mut dims = shape_of(g, x).to_vec();
    if stride == 1 || dims[axis] <= 1 {
        return Ok(x);
    }
    let (size, inner): (usize, usize) = (dims[axis], dims[axis + 1..].iter().product());
    let rows = reshape(g, x, Shape::new([dims[..=axis].iter().product(), inner])?)?;
    let pad = MovementOp::Pad { low: vec![0, 0], high: vec![0, (stride - 1) * inner], value: Scalar::Float(0.0) };
    let padded = movement(g, pad, rows)?;
    dims[axis] = size * stride;
    let spread = reshape(g, padded, Shape::new(dims.clone())?)?;
    dims[axis] = (size - 1) * stride + 1;
    take_block(g, spread, &vec![0; dims.len()], &Shape::new(dims)?)
}
