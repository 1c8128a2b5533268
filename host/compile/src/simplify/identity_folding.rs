//! Folds operators that change nothing, and operators of constants.

use saggar_tensor::interp::{InterpElements, InterpPrecision, InterpTensor, evaluate_op};
use saggar_tensor::op::{BinaryOp, IndexOp, MovementOp, NeutralOperand, Op, ReduceKind, ReduceOp, Scalar, SourceOp};
use saggar_tensor::{Descriptor, Graph, GraphNode, NodeId, Shape};

/// Returns the operand that equals the node element by element and bit by bit (all NaNs count as equal), or `None`.
pub(super) fn equal_operand(graph: &Graph, node: &GraphNode) -> Option<NodeId> {
    let operand = *node.inputs.first()?;
    let unchanged = match &node.op {
        Op::Unary(unary) => unary.is_identity(graph.descriptor(operand).dtype),
        Op::Binary(binary) => return equal_binary_operand(graph, *binary, node.inputs[0], node.inputs[1]),
        Op::Movement(movement) => match movement {
            MovementOp::Reshape(_) | MovementOp::Broadcast(_) => graph.descriptor(operand) == &node.descriptor,
            MovementOp::Transpose(order) => order.iter().enumerate().all(|(to, &from)| to == from),
            MovementOp::Slice { strides, .. } => {
                graph.descriptor(operand) == &node.descriptor && strides.iter().all(|&stride| stride == 1)
            }
            MovementOp::Reverse(axes) => axes.iter().all(|&axis| node.descriptor.shape[axis] <= 1),
            MovementOp::Pad { low, high, .. } => low.iter().chain(high).all(|&added| added == 0),
            MovementOp::Concat { .. } => node.inputs.len() == 1,
        },
        Op::Reduce(ReduceOp::Fold { kind, axes }) => {
            let single = axes.iter().all(|&axis| graph.descriptor(operand).shape[axis] == 1);
            // A float sum starts at +0, so a lone -0 becomes +0.
            single && (*kind != ReduceKind::Sum || !node.descriptor.dtype.is_float())
        }
        Op::Index(IndexOp::Scatter { .. }) => graph.descriptor(node.inputs[1]).shape.elements() == 0,
        Op::Source(_) | Op::Select | Op::Reduce(_) | Op::Contract(_) | Op::Convolution(_) | Op::Index(_) => false,
    };
    unchanged.then_some(operand)
}

fn equal_binary_operand(graph: &Graph, binary: BinaryOp, a: NodeId, b: NodeId) -> Option<NodeId> {
    let is = |node: NodeId, float: f64, int: i128| match graph.node(node).op.fill_value() {
        Some(Scalar::Float(value)) => value.to_bits() == float.to_bits(),
        Some(Scalar::Int(value)) => value == int,
        None => false,
    };
    match binary.facts().neutral {
        NeutralOperand::Second { float, int } | NeutralOperand::Either { float, int } if is(b, float, int) => Some(a),
        NeutralOperand::Either { float, int } if is(a, float, int) => Some(b),
        NeutralOperand::Absent | NeutralOperand::Second { .. } | NeutralOperand::Either { .. } => None,
    }
}

/// Returns the fill that the node equals, for element-wise work and movements of fills and of one-element constants.
pub(super) fn constant_fold(graph: &Graph, node: &GraphNode) -> Option<Op> {
    let scalar = match &node.op {
        Op::Source(SourceOp::Constant(constant)) if node.descriptor.shape.elements() == 1 => {
            let value = InterpTensor::from_bytes(node.descriptor.clone(), &graph.constants[*constant as usize]).ok()?;
            first_element(&value)
        }
        Op::Movement(movement) if movement.is_rearrangement() => graph.node(node.inputs[0]).op.fill_value(),
        Op::Unary(_) | Op::Binary(_) | Op::Select => evaluate_constant(graph, node),
        Op::Source(_) | Op::Movement(_) | Op::Reduce(_) | Op::Contract(_) | Op::Convolution(_) | Op::Index(_) => None,
    };
    scalar.map(|scalar| Op::Source(SourceOp::Fill(scalar)))
}

fn evaluate_constant(graph: &Graph, node: &GraphNode) -> Option<Scalar> {
    let scalar = |dtype| Descriptor::new(dtype, Shape::scalar());
    let operand = |input: &NodeId| {
        let GraphNode { op, descriptor, .. } = graph.node(*input);
        Some(InterpTensor::full(scalar(descriptor.dtype), op.fill_value()?))
    };
    let operands = node.inputs.iter().map(operand).collect::<Option<Vec<InterpTensor>>>()?;
    let operands: Vec<&InterpTensor> = operands.iter().collect();
    first_element(&evaluate_op(&node.op, &operands, &scalar(node.descriptor.dtype), InterpPrecision::Stored))
}

fn first_element(value: &InterpTensor) -> Option<Scalar> {
    match value.elements() {
        InterpElements::Float(values) => values.first().map(|&value| Scalar::Float(value)),
        InterpElements::Int(values) => values.first().map(|&value| Scalar::Int(value)),
    }
}
