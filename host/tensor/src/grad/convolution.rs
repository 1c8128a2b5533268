//! Adjoints of windowed operators. Convolution is linear in each operand, so its adjoints are each other's adjoints.

use super::AdjointStep;
use super::emit::shape_of;
use crate::NodeId;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{Conv2d, ConvolutionOp, Op, PoolKind};

pub(super) fn adjoint(
    g: &mut GraphBuilder,
    op: &ConvolutionOp,
    step: &AdjointStep,
    operand: usize,
) -> Result<Option<NodeId>, GraphError> {
    let dy = step.output_adjoint;
    // The other operand of operators that have two.
    let other = step.inputs[step.inputs.len() - 1 - operand];
    let shape = shape_of(g, step.inputs[operand]);
    let size = [shape[2], shape[3]];
    let first = operand == 0;
    let (op, inputs) = match op {
        ConvolutionOp::Conv2d(conv) if first => input_grad_op(conv, size, dy, other),
        ConvolutionOp::Conv2d(conv) => filter_grad_op(conv, size, other, dy),
        ConvolutionOp::Conv2dInputGrad { conv, size: _ } if first => (ConvolutionOp::Conv2d(*conv), vec![dy, other]),
        ConvolutionOp::Conv2dInputGrad { conv, size: _ } => filter_grad_op(conv, size, dy, other),
        ConvolutionOp::Conv2dFilterGrad { conv, window: _ } if first => input_grad_op(conv, size, other, dy),
        ConvolutionOp::Conv2dFilterGrad { conv, window: _ } => (ConvolutionOp::Conv2d(*conv), vec![other, dy]),
        ConvolutionOp::Pool2d { kind: PoolKind::Sum, pool } => {
            (ConvolutionOp::SumPool2dGrad { pool: *pool, size }, vec![dy])
        }
        ConvolutionOp::Pool2d { kind: PoolKind::Max, pool } => {
            (ConvolutionOp::MaxPool2dGrad(*pool), vec![step.inputs[0], dy])
        }
        ConvolutionOp::SumPool2dGrad { pool, size: _ } => {
            (ConvolutionOp::Pool2d { kind: PoolKind::Sum, pool: *pool }, vec![dy])
        }
        // The position of the largest element does not change with small changes of `x`.
        ConvolutionOp::MaxPool2dGrad(_) if first => return Ok(None),
        ConvolutionOp::MaxPool2dGrad(_) => return Err(GraphError::NoGradient { op: op.name() }),
    };
    g.add_node(Op::Convolution(op), &inputs).map(Some)
}

fn input_grad_op(conv: &Conv2d, size: [usize; 2], dy: NodeId, filter: NodeId) -> (ConvolutionOp, Vec<NodeId>) {
    (ConvolutionOp::Conv2dInputGrad { conv: *conv, size }, vec![dy, filter])
}

fn filter_grad_op(conv: &Conv2d, window: [usize; 2], x: NodeId, dy: NodeId) -> (ConvolutionOp, Vec<NodeId>) {
    (ConvolutionOp::Conv2dFilterGrad { conv: *conv, window }, vec![x, dy])
}
