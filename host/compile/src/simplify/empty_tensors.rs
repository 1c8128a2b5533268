//! Tensors without elements: replaces their readers by constants.

use saggar_tensor::op::{IndexOp, MovementOp, Op, ReduceKind, ReduceOp, Scalar, SourceOp};
use saggar_tensor::{DType, Descriptor, Graph, GraphNode, Shape};

/// Returns the source that replaces a node whose result has elements although an operand has none, or `None` if no
/// operand is empty.
pub(super) fn replace_empty_operands(graph: &Graph, node: &GraphNode) -> Option<Op> {
    let reads_nothing = node.inputs.iter().any(|input| graph.descriptor(*input).shape.elements() == 0);
    if !reads_nothing || node.descriptor.shape.elements() == 0 {
        return None;
    }
    let value = match &node.op {
        Op::Reduce(ReduceOp::Fold { kind, .. }) => Some(fold_identity(*kind, node.descriptor.dtype)),
        // Without updates, a scatter equals its first operand, which has as many elements as the result.
        Op::Index(IndexOp::Scatter { .. }) => None,
        Op::Contract(_) | Op::Convolution(_) | Op::Index(IndexOp::Gather { .. } | IndexOp::ScatterAdd { .. }) => {
            Some(integer_scalar(node.descriptor.dtype, 0))
        }
        Op::Movement(MovementOp::Pad { value, .. }) => Some(*value),
        // A concatenation drops operands without elements. The other operators have an empty result if an operand is
        // empty.
        Op::Movement(_) | Op::Source(_) | Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Reduce(_) => None,
    };
    value.map(|value| Op::Source(SourceOp::Fill(value)))
}

fn integer_scalar(dtype: DType, value: i128) -> Scalar {
    if dtype.is_float() { Scalar::Float(value as f64) } else { Scalar::Int(value) }
}

/// Returns the result of reducing zero elements.
fn fold_identity(kind: ReduceKind, dtype: DType) -> Scalar {
    let bits = 8 * dtype.bytes() as u32;
    let (least, greatest) = match (dtype.is_float(), dtype.is_signed_integer()) {
        (true, _) => (Scalar::Float(f64::NEG_INFINITY), Scalar::Float(f64::INFINITY)),
        (false, true) => (Scalar::Int(-(1 << (bits - 1))), Scalar::Int((1 << (bits - 1)) - 1)),
        (false, false) => (Scalar::Int(0), Scalar::Int((1 << bits) - 1)),
    };
    match kind {
        ReduceKind::Sum => integer_scalar(dtype, 0),
        ReduceKind::Product => integer_scalar(dtype, 1),
        ReduceKind::Max => least,
        ReduceKind::Min => greatest,
    }
}

/// Returns the descriptor with `size` along one axis, which must not increase the number of elements.
pub(super) fn resize_axis(descriptor: &Descriptor, axis: usize, size: usize) -> Descriptor {
    let mut dims = descriptor.shape.to_vec();
    dims[axis] = size;
    Descriptor::new(descriptor.dtype, Shape::new(dims).expect("part of a tensor is within the limits of the whole"))
}
