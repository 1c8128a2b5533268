//! Adjoints of gather and scatter: each is the other's adjoint. Indices have none.

use super::AdjointStep;
use super::emit::{binary, boolean_as_float, dtype_of, fill_like, mul, select, shape_of};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{BinaryOp, IndexOp, Op, Scalar, ScatterCombine};
use crate::{DType, Descriptor, NodeId, Shape};

pub(super) fn adjoint(
    g: &mut GraphBuilder,
    op: IndexOp,
    step: &AdjointStep,
    operand: usize,
) -> Result<Option<NodeId>, GraphError> {
    match (op, operand) {
        (IndexOp::Gather { axis }, 0) => {
            let size = shape_of(g, step.inputs[0])[axis];
            g.scatter_add(step.inputs[1], step.output_adjoint, axis, size).map(Some)
        }
        (IndexOp::ScatterAdd { axis, size: _ }, 1) => g.gather(step.output_adjoint, step.inputs[0], axis).map(Some),
        (IndexOp::Scatter { axis, combine }, 0 | 2) => match combine {
            ScatterCombine::Add if operand == 0 => Ok(Some(step.output_adjoint)),
            ScatterCombine::Add => g.gather(step.output_adjoint, step.inputs[1], axis).map(Some),
            ScatterCombine::Replace => replace_adjoint(g, axis, step, operand).map(Some),
            ScatterCombine::Mul => multiply_adjoint(g, axis, step, operand).map(Some),
            ScatterCombine::Min | ScatterCombine::Max => extremum_adjoint(g, axis, step, operand).map(Some),
        },
        (IndexOp::Gather { .. } | IndexOp::ScatterAdd { .. } | IndexOp::Scatter { .. }, _) => Ok(None),
    }
}

/// Returns the adjoint of a replacing scatter: the operand's element has an adjoint if it was not replaced, an update
/// if it was the last one of its index.
fn replace_adjoint(
    g: &mut GraphBuilder,
    axis: usize,
    step: &AdjointStep,
    operand: usize,
) -> Result<NodeId, GraphError> {
    let (indices, dims) = (step.inputs[1], shape_of(g, step.inputs[0]).clone());
    let count = shape_of(g, indices).elements();
    let flat = g.reshape(indices, &[count])?;
    // For each position, the number of its last update, or -1 if it has none.
    let nobody = g.fill(Descriptor::new(DType::I32, Shape::new([dims[axis]])?), Scalar::Int(-1))?;
    let position = g.iota(Descriptor::new(DType::I32, Shape::new([count])?), 0)?;
    let last = Op::Index(IndexOp::Scatter { axis: 0, combine: ScatterCombine::Replace });
    let winner = g.add_node(last, &[nobody, flat, position])?;
    let nothing = fill_like(g, step.output_adjoint, 0.0)?;
    if operand == 0 {
        let nobody = g.scalar(DType::I32, Scalar::Int(-1))?;
        let is_unwritten = g.equal(winner, nobody)?;
        let along: Vec<usize> = (0..dims.rank()).map(|at| if at == axis { dims[axis] } else { 1 }).collect();
        let is_unwritten = g.reshape(is_unwritten, &along)?;
        return g.select(is_unwritten, step.output_adjoint, nothing);
    }
    let winner = g.gather(winner, flat, 0)?;
    let last = g.equal(winner, position)?;
    let index_dims = shape_of(g, indices).clone();
    let updates = shape_of(g, step.inputs[2]).clone();
    let within = axis..axis + index_dims.rank();
    let along: Vec<usize> = (0..updates.rank()).map(|at| if within.contains(&at) { updates[at] } else { 1 }).collect();
    let last = g.reshape(last, &along)?;
    let chosen = g.gather(step.output_adjoint, indices, axis)?;
    let nothing = fill_like(g, chosen, 0.0)?;
    g.select(last, chosen, nothing)
}

/// Returns the adjoint of a multiplying scatter: the output adjoint times the other factors of the element. Their
/// product is the product of all non-zero factors divided by the factor, or zero if another factor is zero, so nothing
/// is divided by zero.
fn multiply_adjoint(
    g: &mut GraphBuilder,
    axis: usize,
    step: &AdjointStep,
    operand: usize,
) -> Result<NodeId, GraphError> {
    let [x, indices, updates] = [step.inputs[0], step.inputs[1], step.inputs[2]];
    let (none, one) = (fill_like(g, updates, 0.0)?, fill_like(g, updates, 1.0)?);
    let is_zero = binary(g, BinaryOp::Equal, updates, none)?;
    if operand == 0 {
        let ones = fill_like(g, x, 1.0)?;
        let factors = g.scatter(ones, indices, updates, axis, ScatterCombine::Mul)?;
        return mul(g, step.output_adjoint, factors);
    }
    let factors = select(g, is_zero, one, updates)?;
    let product = g.scatter(x, indices, factors, axis, ScatterCombine::Mul)?;
    let dtype = dtype_of(g, updates);
    let zero = boolean_as_float(g, is_zero, dtype)?;
    let zeros = g.scatter_add(indices, zero, axis, shape_of(g, x)[axis])?;
    let (slopes, zeros) = (mul(g, step.output_adjoint, product)?, g.gather(zeros, indices, axis)?);
    let slopes = g.gather(slopes, indices, axis)?;
    let slopes = binary(g, BinaryOp::Div, slopes, factors)?;
    let others = binary(g, BinaryOp::Equal, zeros, zero)?;
    select(g, others, slopes, none)
}

/// Returns the adjoint of a minimum or maximum: the output adjoint, divided equally among the element and the updates
/// that equal the result.
fn extremum_adjoint(
    g: &mut GraphBuilder,
    axis: usize,
    step: &AdjointStep,
    operand: usize,
) -> Result<NodeId, GraphError> {
    let [x, indices, updates] = [step.inputs[0], step.inputs[1], step.inputs[2]];
    let dtype = dtype_of(g, x);
    let x_mask = binary(g, BinaryOp::Equal, x, step.output)?;
    let x_mask = boolean_as_float(g, x_mask, dtype)?;
    let result = g.gather(step.output, indices, axis)?;
    let update_mask = binary(g, BinaryOp::Equal, updates, result)?;
    let update_mask = boolean_as_float(g, update_mask, dtype)?;
    let count = g.scatter(x_mask, indices, update_mask, axis, ScatterCombine::Add)?;
    let share = binary(g, BinaryOp::Div, step.output_adjoint, count)?;
    if operand == 0 {
        return mul(g, share, x_mask);
    }
    let share = g.gather(share, indices, axis)?;
    mul(g, share, update_mask)
}
