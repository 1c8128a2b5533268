//! Operators that change nothing, and operators of constants.

use saggar_tensor::interp::{Elements, Precision, Value, apply};
use saggar_tensor::op::{Binary, Index, Movement, Op, Reduce, ReduceKind, Scalar, Source, Unary};
use saggar_tensor::{Descriptor, Graph, Node, NodeId, Shape};

/// The operand that the node is equal to, element by element and bit by bit (all NaNs being one).
pub(super) fn same(graph: &Graph, node: &Node) -> Option<NodeId> {
    let operand = *node.inputs.first()?;
    let unchanged = match &node.op {
        Op::Unary(Unary::StopGradient) => true,
        Op::Unary(Unary::Cast(dtype)) => *dtype == graph.descriptor(operand).dtype,
        Op::Binary(binary) => return same_binary(graph, *binary, node.inputs[0], node.inputs[1]),
        Op::Movement(movement) => match movement {
            Movement::Reshape(_) | Movement::Broadcast(_) => graph.descriptor(operand) == &node.descriptor,
            Movement::Transpose(order) => order.iter().enumerate().all(|(to, &from)| to == from),
            Movement::Slice { strides, .. } => {
                graph.descriptor(operand) == &node.descriptor && strides.iter().all(|&stride| stride == 1)
            }
            Movement::Reverse(axes) => axes.iter().all(|&axis| node.descriptor.shape[axis] <= 1),
            Movement::Pad { low, high, .. } => low.iter().chain(high).all(|&added| added == 0),
            Movement::Concat { .. } => node.inputs.len() == 1,
        },
        Op::Reduce(Reduce::Fold { kind, axes }) => {
            let single = axes.iter().all(|&axis| graph.descriptor(operand).shape[axis] == 1);
            // A float sum starts at +0, so a lone -0 becomes +0.
            single && (*kind != ReduceKind::Sum || !node.descriptor.dtype.is_float())
        }
        Op::Unary(
            Unary::Neg
            | Unary::Abs
            | Unary::Sign
            | Unary::Exp
            | Unary::Log
            | Unary::Sqrt
            | Unary::Reciprocal
            | Unary::Sin
            | Unary::Cos
            | Unary::Tanh
            | Unary::Erf
            | Unary::Floor
            | Unary::Ceil
            | Unary::RoundEven
            | Unary::LogicalNot,
        )
        | Op::Source(_)
        | Op::Select
        | Op::Reduce(Reduce::ArgMax { .. } | Reduce::ArgMin { .. })
        | Op::Contract(_)
        | Op::Convolution(_)
        | Op::Index(Index::Gather { .. } | Index::ScatterAdd { .. }) => false,
        Op::Index(Index::Scatter { .. }) => graph.descriptor(node.inputs[1]).shape.elements() == 0,
    };
    unchanged.then_some(operand)
}

fn same_binary(graph: &Graph, binary: Binary, a: NodeId, b: NodeId) -> Option<NodeId> {
    let is = |node: NodeId, float: f64, int: i128| match fill(graph, node) {
        Some(Scalar::Float(value)) => value.to_bits() == float.to_bits(),
        Some(Scalar::Int(value)) => value == int,
        None => false,
    };
    match binary {
        // x + -0 is x for every float, while -0 + 0 is +0.
        Binary::Add if is(b, -0.0, 0) => Some(a),
        Binary::Add if is(a, -0.0, 0) => Some(b),
        Binary::Sub if is(b, 0.0, 0) => Some(a),
        Binary::Mul if is(b, 1.0, 1) => Some(a),
        Binary::Mul if is(a, 1.0, 1) => Some(b),
        Binary::Div if is(b, 1.0, 1) => Some(a),
        Binary::Add
        | Binary::Sub
        | Binary::Mul
        | Binary::Div
        | Binary::Pow
        | Binary::Max
        | Binary::Min
        | Binary::Equal
        | Binary::Less
        | Binary::LessOrEqual
        | Binary::LogicalAnd
        | Binary::LogicalOr
        | Binary::LogicalXor => None,
    }
}

/// What every element of a node is, where it is a fill.
pub(super) fn fill(graph: &Graph, node: NodeId) -> Option<Scalar> {
    match &graph.node(node).op {
        Op::Source(Source::Fill(scalar)) => Some(*scalar),
        Op::Source(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Contract(_)
        | Op::Convolution(_)
        | Op::Index(_) => None,
    }
}

/// The fill that the node is: element-wise work and movements of fills, and constants of one element.
pub(super) fn folded(graph: &Graph, node: &Node) -> Option<Op> {
    let scalar = match &node.op {
        Op::Source(Source::Constant(constant)) if node.descriptor.shape.elements() == 1 => {
            let value = Value::from_bytes(node.descriptor.clone(), &graph.constants[*constant as usize]).ok()?;
            first(&value)
        }
        Op::Movement(movement) => match movement {
            Movement::Reshape(_)
            | Movement::Broadcast(_)
            | Movement::Transpose(_)
            | Movement::Slice { .. }
            | Movement::Reverse(_) => fill(graph, node.inputs[0]),
            Movement::Pad { .. } | Movement::Concat { .. } => None,
        },
        Op::Unary(_) | Op::Binary(_) | Op::Select => evaluated(graph, node),
        Op::Source(_) | Op::Reduce(_) | Op::Contract(_) | Op::Convolution(_) | Op::Index(_) => None,
    };
    scalar.map(|scalar| Op::Source(Source::Fill(scalar)))
}

fn evaluated(graph: &Graph, node: &Node) -> Option<Scalar> {
    let scalar = |dtype| Descriptor::new(dtype, Shape::scalar());
    let operand = |input: &NodeId| Some(Value::filled(scalar(graph.descriptor(*input).dtype), fill(graph, *input)?));
    let operands = node.inputs.iter().map(operand).collect::<Option<Vec<Value>>>()?;
    let operands: Vec<&Value> = operands.iter().collect();
    first(&apply(&node.op, &operands, &scalar(node.descriptor.dtype), Precision::Stored))
}

fn first(value: &Value) -> Option<Scalar> {
    match value.elements() {
        Elements::Float(values) => values.first().map(|&value| Scalar::Float(value)),
        Elements::Int(values) => values.first().map(|&value| Scalar::Int(value)),
    }
}
