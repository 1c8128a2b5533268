//! Adjoints of data-dependent selections: gathering and scattering are each other's; indices have none.

use super::Step;
use super::emit::{binary, dtype_of, like, mul, select, shape_of, truth};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{Binary, Combine, Index, Op, Scalar};
use crate::{DType, Descriptor, NodeId, Shape};

pub(super) fn adjoint(
    g: &mut GraphBuilder,
    op: Index,
    step: &Step,
    operand: usize,
) -> Result<Option<NodeId>, GraphError> {
    match (op, operand) {
        (Index::Gather { axis }, 0) => {
            let size = shape_of(g, step.inputs[0])[axis];
            g.scatter_add(step.inputs[1], step.dy, axis, size).map(Some)
        }
        (Index::ScatterAdd { axis, size: _ }, 1) => g.gather(step.dy, step.inputs[0], axis).map(Some),
        (Index::Scatter { axis, combine }, 0 | 2) => match combine {
            Combine::Add if operand == 0 => Ok(Some(step.dy)),
            Combine::Add => g.gather(step.dy, step.inputs[1], axis).map(Some),
            Combine::Replace => replaced(g, axis, step, operand).map(Some),
            Combine::Mul => multiplied(g, axis, step, operand).map(Some),
            Combine::Min | Combine::Max => extremum(g, axis, step, operand).map(Some),
        },
        (Index::Gather { .. } | Index::ScatterAdd { .. } | Index::Scatter { .. }, _) => Ok(None),
    }
}

/// Of a replacing scatter: the operand's element has an adjoint where it was not replaced, an update's where it was the
/// last at its place.
fn replaced(g: &mut GraphBuilder, axis: usize, step: &Step, operand: usize) -> Result<NodeId, GraphError> {
    let (indices, dims) = (step.inputs[1], shape_of(g, step.inputs[0]).clone());
    let count = shape_of(g, indices).elements();
    let flat = g.reshape(indices, &[count])?;
    // Which update each place ends with; -1 where none does.
    let nobody = g.fill(Descriptor::new(DType::I32, Shape::new([dims[axis]])?), Scalar::Int(-1))?;
    let position = g.iota(Descriptor::new(DType::I32, Shape::new([count])?), 0)?;
    let last = Op::Index(Index::Scatter { axis: 0, combine: Combine::Replace });
    let winner = g.add_node(last, &[nobody, flat, position])?;
    let nothing = like(g, step.dy, 0.0)?;
    if operand == 0 {
        let nobody = g.scalar(DType::I32, Scalar::Int(-1))?;
        let kept = g.equal(winner, nobody)?;
        let along: Vec<usize> = (0..dims.rank()).map(|at| if at == axis { dims[axis] } else { 1 }).collect();
        let kept = g.reshape(kept, &along)?;
        return g.select(kept, step.dy, nothing);
    }
    let winner = g.gather(winner, flat, 0)?;
    let last = g.equal(winner, position)?;
    let index_dims = shape_of(g, indices).clone();
    let updates = shape_of(g, step.inputs[2]).clone();
    let within = axis..axis + index_dims.rank();
    let along: Vec<usize> = (0..updates.rank()).map(|at| if within.contains(&at) { updates[at] } else { 1 }).collect();
    let last = g.reshape(last, &along)?;
    let chosen = g.gather(step.dy, indices, axis)?;
    let nothing = like(g, chosen, 0.0)?;
    g.select(last, chosen, nothing)
}

/// Of a multiplying scatter: `dy` times the other factors at the place. They are the product of those that are not zero,
/// over the factor itself, and zero where another factor is zero: no division by zero.
fn multiplied(g: &mut GraphBuilder, axis: usize, step: &Step, operand: usize) -> Result<NodeId, GraphError> {
    let [x, indices, updates] = [step.inputs[0], step.inputs[1], step.inputs[2]];
    let (none, one) = (like(g, updates, 0.0)?, like(g, updates, 1.0)?);
    let is_zero = binary(g, Binary::Equal, updates, none)?;
    if operand == 0 {
        let ones = like(g, x, 1.0)?;
        let factors = g.scatter(ones, indices, updates, axis, Combine::Mul)?;
        return mul(g, step.dy, factors);
    }
    let factors = select(g, is_zero, one, updates)?;
    let product = g.scatter(x, indices, factors, axis, Combine::Mul)?;
    let dtype = dtype_of(g, updates);
    let zero = truth(g, is_zero, dtype)?;
    let zeros = g.scatter_add(indices, zero, axis, shape_of(g, x)[axis])?;
    let (slopes, zeros) = (mul(g, step.dy, product)?, g.gather(zeros, indices, axis)?);
    let slopes = g.gather(slopes, indices, axis)?;
    let slopes = binary(g, Binary::Div, slopes, factors)?;
    let others = binary(g, Binary::Equal, zeros, zero)?;
    select(g, others, slopes, none)
}

/// Of a minimum or maximum: `dy` divided equally among the element and the updates that equal the result.
fn extremum(g: &mut GraphBuilder, axis: usize, step: &Step, operand: usize) -> Result<NodeId, GraphError> {
    let [x, indices, updates] = [step.inputs[0], step.inputs[1], step.inputs[2]];
    let dtype = dtype_of(g, x);
    let kept = binary(g, Binary::Equal, x, step.output)?;
    let kept = truth(g, kept, dtype)?;
    let result = g.gather(step.output, indices, axis)?;
    let chosen = binary(g, Binary::Equal, updates, result)?;
    let chosen = truth(g, chosen, dtype)?;
    let count = g.scatter(kept, indices, chosen, axis, Combine::Add)?;
    let share = binary(g, Binary::Div, step.dy, count)?;
    if operand == 0 {
        return mul(g, share, kept);
    }
    let share = g.gather(share, indices, axis)?;
    mul(g, share, chosen)
}
