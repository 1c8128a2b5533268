//! Adjoints of windowed operators. Convolution is linear in each operand, so its adjoints are each other's adjoints.

use super::Step;
use super::emit::shape_of;
use crate::NodeId;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{Conv2d, Convolution, Op, Pool};

pub(super) fn adjoint(
    g: &mut GraphBuilder,
    op: &Convolution,
    step: &Step,
    operand: usize,
) -> Result<Option<NodeId>, GraphError> {
    let dy = step.dy;
    // The other operand of those that have two.
    let other = step.inputs[step.inputs.len() - 1 - operand];
    let shape = shape_of(g, step.inputs[operand]);
    let size = [shape[2], shape[3]];
    let first = operand == 0;
    let (op, inputs) = match op {
        Convolution::Conv2d(conv) if first => input_grad(conv, size, dy, other),
        Convolution::Conv2d(conv) => filter_grad(conv, size, other, dy),
        Convolution::Conv2dInputGrad { conv, size: _ } if first => (Convolution::Conv2d(*conv), vec![dy, other]),
        Convolution::Conv2dInputGrad { conv, size: _ } => filter_grad(conv, size, dy, other),
        Convolution::Conv2dFilterGrad { conv, window: _ } if first => input_grad(conv, size, other, dy),
        Convolution::Conv2dFilterGrad { conv, window: _ } => (Convolution::Conv2d(*conv), vec![other, dy]),
        Convolution::Pool2d { kind: Pool::Sum, pool } => (Convolution::SumPool2dGrad { pool: *pool, size }, vec![dy]),
        Convolution::Pool2d { kind: Pool::Max, pool } => (Convolution::MaxPool2dGrad(*pool), vec![step.inputs[0], dy]),
        Convolution::SumPool2dGrad { pool, size: _ } => {
            (Convolution::Pool2d { kind: Pool::Sum, pool: *pool }, vec![dy])
        }
        // Which element is the largest does not change with small changes of `x`.
        Convolution::MaxPool2dGrad(_) if first => return Ok(None),
        Convolution::MaxPool2dGrad(_) => return Err(GraphError::NoGradient { op: op.name() }),
    };
    g.add_node(Op::Convolution(op), &inputs).map(Some)
}

fn input_grad(conv: &Conv2d, size: [usize; 2], dy: NodeId, filter: NodeId) -> (Convolution, Vec<NodeId>) {
    (Convolution::Conv2dInputGrad { conv: *conv, size }, vec![dy, filter])
}

fn filter_grad(conv: &Conv2d, window: [usize; 2], x: NodeId, dy: NodeId) -> (Convolution, Vec<NodeId>) {
    (Convolution::Conv2dFilterGrad { conv: *conv, window }, vec![x, dy])
}
