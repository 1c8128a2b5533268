//! Inference of movements.

use super::{check_attribute_count, check_attribute_range, check_scalar, expect_operands, new_descriptor};
use crate::error::GraphError;
use crate::limits::OPERANDS_MAX;
use crate::op::MovementOp;
use crate::{Descriptor, Shape};

pub(super) fn infer(movement: &MovementOp, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = movement.name();
    let one = || expect_operands(op, inputs).map(|[input]| input);
    match movement {
        MovementOp::Reshape(to) => reshape(op, one()?, to),
        MovementOp::Broadcast(to) => broadcast(op, one()?, to),
        MovementOp::Transpose(permutation) => transpose(op, one()?, permutation),
        MovementOp::Slice { starts, sizes, strides } => slice(op, one()?, starts, sizes, strides),
        MovementOp::Reverse(axes) => {
            let input = one()?;
            super::check_axes(op, input, axes)?;
            Ok(input.clone())
        }
        MovementOp::Pad { low, high, value } => {
            let input = one()?;
            check_scalar(op, *value, input.dtype)?;
            pad(op, input, low, high)
        }
        MovementOp::Concat { axis } => concat(op, inputs, *axis),
    }
}

fn reshape(op: &'static str, input: &Descriptor, to: &Shape) -> Result<Descriptor, GraphError> {
    if input.shape.elements() != to.elements() {
        return Err(GraphError::ElementCount { op, from: input.clone(), to: to.clone() });
    }
    Ok(Descriptor::new(input.dtype, to.clone()))
}

fn broadcast(op: &'static str, input: &Descriptor, to: &Shape) -> Result<Descriptor, GraphError> {
    let fits = |(&from, &to): (&usize, &usize)| from == to || from == 1;
    if input.shape.rank() != to.rank() || !input.shape.iter().zip(to.iter()).all(fits) {
        return Err(GraphError::BroadcastTo { op, from: input.clone(), to: to.clone() });
    }
    Ok(Descriptor::new(input.dtype, to.clone()))
}

fn transpose(op: &'static str, input: &Descriptor, permutation: &[usize]) -> Result<Descriptor, GraphError> {
    let rank = input.shape.rank();
    check_attribute_count(op, "permutation", rank, permutation.len())?;
    let mut seen = vec![false; rank];
    for &axis in permutation {
        if axis >= rank || std::mem::replace(&mut seen[axis], true) {
            let permutation = permutation.to_vec();
            return Err(GraphError::NotPermutation { op, permutation, got: input.clone() });
        }
    }
    new_descriptor(input.dtype, permutation.iter().map(|&axis| input.shape[axis]).collect())
}

fn slice(
    op: &'static str,
    input: &Descriptor,
    starts: &[usize],
    sizes: &[usize],
    strides: &[usize],
) -> Result<Descriptor, GraphError> {
    let rank = input.shape.rank();
    check_attribute_count(op, "starts", rank, starts.len())?;
    check_attribute_count(op, "sizes", rank, sizes.len())?;
    check_attribute_count(op, "strides", rank, strides.len())?;
    for axis in 0..rank {
        let (start, size, stride) = (starts[axis], sizes[axis], strides[axis]);
        check_attribute_range(op, "stride", 1, stride)?;
        // The index after the last element taken; for zero elements, the start.
        let end = match size {
            0 => Some(start),
            size => (size - 1).checked_mul(stride).and_then(|n| n.checked_add(start)).and_then(|n| n.checked_add(1)),
        };
        if end.is_none_or(|end| end > input.shape[axis]) {
            return Err(GraphError::SliceOutOfRange { op, axis, start, size, stride, got: input.clone() });
        }
    }
    new_descriptor(input.dtype, sizes.to_vec())
}

fn pad(op: &'static str, input: &Descriptor, low: &[usize], high: &[usize]) -> Result<Descriptor, GraphError> {
    let rank = input.shape.rank();
    check_attribute_count(op, "low", rank, low.len())?;
    check_attribute_count(op, "high", rank, high.len())?;
    let mut dims = input.shape.to_vec();
    for (axis, dim) in dims.iter_mut().enumerate() {
        check_attribute_range(op, "low", 0, low[axis])?;
        check_attribute_range(op, "high", 0, high[axis])?;
        *dim += low[axis] + high[axis];
    }
    new_descriptor(input.dtype, dims)
}

fn concat(op: &'static str, inputs: &[&Descriptor], axis: usize) -> Result<Descriptor, GraphError> {
    let count = inputs.len();
    if count == 0 || count > OPERANDS_MAX {
        return Err(GraphError::OperandCount { op, least: 1, most: OPERANDS_MAX, got: count });
    }
    let first = inputs[0];
    super::check_axis(op, first, axis)?;
    let mut dims = first.shape.to_vec();
    for input in &inputs[1..] {
        super::check_same_dtype(op, first, input)?;
        let mut others = input.shape.to_vec();
        if let Some(dim) = others.get_mut(axis) {
            *dim = first.shape[axis];
        }
        if others != *first.shape {
            return Err(GraphError::ShapesDiffer { op, lhs: first.clone(), rhs: (*input).clone() });
        }
        dims[axis] += input.shape[axis];
    }
    new_descriptor(first.dtype, dims)
}
