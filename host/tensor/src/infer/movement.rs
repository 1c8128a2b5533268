//! Inference of movements.

use super::{attribute, attribute_count, check_scalar, described, operands};
use crate::error::GraphError;
use crate::limits::OPERANDS_MAX;
use crate::op::Movement;
use crate::{Descriptor, Shape};

pub(super) fn infer(movement: &Movement, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = movement.name();
    let one = || operands(op, inputs).map(|[input]| input);
    match movement {
        Movement::Reshape(to) => reshape(op, one()?, to),
        Movement::Broadcast(to) => broadcast(op, one()?, to),
        Movement::Transpose(permutation) => transpose(op, one()?, permutation),
        Movement::Slice { starts, sizes, strides } => slice(op, one()?, starts, sizes, strides),
        Movement::Reverse(axes) => {
            let input = one()?;
            super::axes(op, input, axes)?;
            Ok(input.clone())
        }
        Movement::Pad { low, high, value } => {
            let input = one()?;
            check_scalar(op, *value, input.dtype)?;
            pad(op, input, low, high)
        }
        Movement::Concat { axis } => concat(op, inputs, *axis),
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
    attribute_count(op, "permutation", rank, permutation.len())?;
    let mut seen = vec![false; rank];
    for &axis in permutation {
        if axis >= rank || std::mem::replace(&mut seen[axis], true) {
            let permutation = permutation.to_vec();
            return Err(GraphError::NotPermutation { op, permutation, got: input.clone() });
        }
    }
    described(input.dtype, permutation.iter().map(|&axis| input.shape[axis]).collect())
}

fn slice(
    op: &'static str,
    input: &Descriptor,
    starts: &[usize],
    sizes: &[usize],
    strides: &[usize],
) -> Result<Descriptor, GraphError> {
    let rank = input.shape.rank();
    attribute_count(op, "starts", rank, starts.len())?;
    attribute_count(op, "sizes", rank, sizes.len())?;
    attribute_count(op, "strides", rank, strides.len())?;
    for axis in 0..rank {
        let (start, size, stride) = (starts[axis], sizes[axis], strides[axis]);
        attribute(op, "stride", 1, stride)?;
        // The index one past the last element taken; of nothing, the start itself.
        let end = match size {
            0 => Some(start),
            size => (size - 1).checked_mul(stride).and_then(|n| n.checked_add(start)).and_then(|n| n.checked_add(1)),
        };
        if end.is_none_or(|end| end > input.shape[axis]) {
            return Err(GraphError::SliceOutOfRange { op, axis, start, size, stride, got: input.clone() });
        }
    }
    described(input.dtype, sizes.to_vec())
}

fn pad(op: &'static str, input: &Descriptor, low: &[usize], high: &[usize]) -> Result<Descriptor, GraphError> {
    let rank = input.shape.rank();
    attribute_count(op, "low", rank, low.len())?;
    attribute_count(op, "high", rank, high.len())?;
    let mut dims = input.shape.to_vec();
    for (axis, dim) in dims.iter_mut().enumerate() {
        attribute(op, "low", 0, low[axis])?;
        attribute(op, "high", 0, high[axis])?;
        *dim += low[axis] + high[axis];
    }
    described(input.dtype, dims)
}

fn concat(op: &'static str, inputs: &[&Descriptor], axis: usize) -> Result<Descriptor, GraphError> {
    let count = inputs.len();
    if count == 0 || count > OPERANDS_MAX {
        return Err(GraphError::OperandCount { op, least: 1, most: OPERANDS_MAX, got: count });
    }
    let first = inputs[0];
    super::axis(op, first, axis)?;
    let mut dims = first.shape.to_vec();
    for input in &inputs[1..] {
        super::same_dtype(op, first, input)?;
        let mut others = input.shape.to_vec();
        if let Some(dim) = others.get_mut(axis) {
            *dim = first.shape[axis];
        }
        if others != *first.shape {
            return Err(GraphError::ShapesDiffer { op, lhs: first.clone(), rhs: (*input).clone() });
        }
        dims[axis] += input.shape[axis];
    }
    described(first.dtype, dims)
}
