//! Helpers that emit the primitives of gradient rules. Operands already agree in shape; nothing broadcasts.

use crate::builder::GraphBuilder;
use crate::error::NodeResult;
use crate::op::{BinaryOp, MovementOp, Op, ReduceKind, ReduceOp, Scalar, UnaryOp};
use crate::{DType, NodeId, Shape};

/// Returns a fill of `value` in `node`'s data type and shape.
pub(super) fn fill_like(g: &mut GraphBuilder, node: NodeId, value: f64) -> NodeResult {
    let descriptor = g.graph().descriptor(node).clone();
    g.fill(descriptor, Scalar::Float(value))
}

pub(super) fn unary(g: &mut GraphBuilder, op: UnaryOp, x: NodeId) -> NodeResult {
    g.add_node(Op::Unary(op), &[x])
}

pub(super) fn binary(g: &mut GraphBuilder, op: BinaryOp, a: NodeId, b: NodeId) -> NodeResult {
    g.add_node(Op::Binary(op), &[a, b])
}

pub(super) fn mul(g: &mut GraphBuilder, a: NodeId, b: NodeId) -> NodeResult {
    binary(g, BinaryOp::Mul, a, b)
}

/// Returns `x * value`.
pub(super) fn scale(g: &mut GraphBuilder, x: NodeId, value: f64) -> NodeResult {
    let factor = fill_like(g, x, value)?;
    mul(g, x, factor)
}

/// Returns `condition ? a : b`.
pub(super) fn select(g: &mut GraphBuilder, condition: NodeId, a: NodeId, b: NodeId) -> NodeResult {
    g.add_node(Op::Select, &[condition, a, b])
}

/// Returns a boolean as 0.0 or 1.0. Its derivative is zero, because small changes of the compared operands do not
/// change the result.
pub(super) fn boolean_as_float(g: &mut GraphBuilder, condition: NodeId, dtype: DType) -> NodeResult {
    let condition = unary(g, UnaryOp::StopGradient, condition)?;
    unary(g, UnaryOp::Cast(dtype), condition)
}

pub(super) fn movement(g: &mut GraphBuilder, op: MovementOp, x: NodeId) -> NodeResult {
    g.add_node(Op::Movement(op), &[x])
}

pub(super) fn reshape(g: &mut GraphBuilder, x: NodeId, shape: Shape) -> NodeResult {
    if *shape_of(g, x) == shape { Ok(x) } else { movement(g, MovementOp::Reshape(shape), x) }
}

/// Returns `x` with its axes of size 1 repeated to the shape of `to`.
pub(super) fn expand(g: &mut GraphBuilder, x: NodeId, to: NodeId) -> NodeResult {
    let shape = shape_of(g, to).clone();
    if *shape_of(g, x) == shape { Ok(x) } else { movement(g, MovementOp::Broadcast(shape), x) }
}

pub(super) fn fold(g: &mut GraphBuilder, kind: ReduceKind, axes: &[usize], x: NodeId) -> NodeResult {
    g.add_node(Op::Reduce(ReduceOp::Fold { kind, axes: axes.to_vec() }), &[x])
}

pub(super) fn shape_of(g: &GraphBuilder, node: NodeId) -> &Shape {
    &g.graph().descriptor(node).shape
}

pub(super) fn dtype_of(g: &GraphBuilder, node: NodeId) -> DType {
    g.graph().descriptor(node).dtype
}
