//! Adjoints of data-dependent selections: gathering and scattering are each other's; indices have none.

use super::Step;
use super::emit::{self, shape_of};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{Combine, Index, Op, Scalar};
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
            Combine::Mul | Combine::Min | Combine::Max => Err(GraphError::NoGradient { op: op.name() }),
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
    let nothing = emit::like(g, step.dy, 0.0)?;
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
    let nothing = emit::like(g, chosen, 0.0)?;
    g.select(last, chosen, nothing)
}
