//! The reference interpreter: naive loops that define the meaning of every operator. Backends and gradients are tested
//! against it; speed is not a goal.
//!
//! Floats are computed in f64 and rounded to the node's data type once per node; sums are accumulated in f64. Integers
//! wrap in their data type. Nodes that no output or assignment depends on are not computed.

mod binary;
mod contract;
mod convolution;
mod coordinates;
pub mod float16;
mod index;
mod movement;
mod reduce;
mod source;
mod unary;
mod value;

use crate::error::GraphError;
use crate::graph::{Graph, GraphPort};
use crate::op::{Op, SourceOp};
use crate::verify::VerifiedGraph;
use crate::{Descriptor, NodeId};

pub use source::philox4x32_10;
pub use value::{InterpElements, InterpTensor};

/// Rounding of float results between operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterpPrecision {
    /// Rounds to the node's data type: the definition of the operators.
    Stored,
    /// Keeps f64 whatever the data type, for finite differences, which rounding errors would exceed.
    Exact,
}

/// Evaluates `graph` with these inputs. Returns the outputs in the graph's order, and updates `variables` with the
/// assigned values.
///
/// # Errors
/// Returns `ValueCount` or `ValueDescriptor` if inputs or variables do not match those that the graph declares.
pub fn evaluate(
    graph: &VerifiedGraph,
    inputs: &[InterpTensor],
    variables: &mut [InterpTensor],
) -> Result<Vec<InterpTensor>, GraphError> {
    evaluate_with(graph, inputs, variables, InterpPrecision::Stored)
}

/// Evaluates as [`evaluate`] does, with the given precision of intermediate floats.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_with(
    graph: &VerifiedGraph,
    inputs: &[InterpTensor],
    variables: &mut [InterpTensor],
    precision: InterpPrecision,
) -> Result<Vec<InterpTensor>, GraphError> {
    let graph = graph.graph();
    check_port_values("inputs", &graph.inputs, inputs)?;
    check_port_values("variables", &graph.variables, variables)?;
    let mut uses = use_counts(graph);
    let mut values: Vec<Option<InterpTensor>> = vec![None; graph.nodes.len()];
    for (position, node) in graph.nodes.iter().enumerate() {
        if uses[position] == 0 {
            continue;
        }
        let value = match node.op.as_source() {
            Some(SourceOp::Input(input)) => inputs[*input as usize].clone(),
            Some(SourceOp::Variable(variable)) => variables[*variable as usize].clone(),
            Some(SourceOp::Constant(constant)) => {
                InterpTensor::from_bytes(node.descriptor.clone(), &graph.constants[*constant as usize])?
            }
            Some(SourceOp::Fill(_) | SourceOp::Iota { .. } | SourceOp::Random { .. }) | None => {
                let operands: Vec<&InterpTensor> =
                    node.inputs.iter().map(|&input| computed_value(&values, input)).collect();
                evaluate_op(&node.op, &operands, &node.descriptor, precision)
            }
        };
        values[position] = Some(value);
        for input in &node.inputs {
            uses[input.index()] -= 1;
            if uses[input.index()] == 0 {
                values[input.index()] = None;
            }
        }
    }
    let outputs = graph.outputs.iter().map(|&(_, node)| computed_value(&values, node).clone()).collect();
    for &(variable, node) in &graph.assignments {
        variables[variable as usize] = computed_value(&values, node).clone();
    }
    Ok(outputs)
}

/// Returns the result of one operator on values that inference has accepted for it. `descriptor` is the inferred
/// descriptor.
///
/// Inputs, constants and variables are not accepted, because their values come from outside.
pub fn evaluate_op(
    op: &Op,
    operands: &[&InterpTensor],
    descriptor: &Descriptor,
    precision: InterpPrecision,
) -> InterpTensor {
    let shape = &descriptor.shape;
    let elements = match op {
        Op::Source(SourceOp::Fill(scalar)) => source::fill(*scalar, descriptor),
        Op::Source(SourceOp::Iota { axis }) => source::iota(*axis, descriptor),
        Op::Source(SourceOp::Random { stream, distribution }) => {
            source::random(operands[0], *stream, *distribution, shape)
        }
        Op::Source(SourceOp::Input(_) | SourceOp::Constant(_) | SourceOp::Variable(_)) => {
            unreachable!("{op:?} is bound before operators are applied")
        }
        Op::Unary(op) => unary::evaluate(*op, operands[0]),
        Op::Binary(op) => binary::evaluate(*op, operands[0], operands[1]),
        Op::Select => binary::select(operands[0], operands[1], operands[2]),
        Op::Reduce(op) => reduce::evaluate(op, operands[0]),
        Op::Movement(op) => movement::evaluate(op, operands, shape),
        Op::Contract(op) => contract::evaluate(*op, operands[0], operands[1], shape),
        Op::Convolution(op) => convolution::evaluate(op, operands, shape),
        Op::Index(op) => index::evaluate(*op, operands, shape),
    };
    InterpTensor::rounded_to_dtype(descriptor.clone(), elements, precision)
}

fn check_port_values(ports: &'static str, declared: &[GraphPort], given: &[InterpTensor]) -> Result<(), GraphError> {
    if declared.len() != given.len() {
        return Err(GraphError::ValueCount { ports, expected: declared.len(), got: given.len() });
    }
    for (port, value) in declared.iter().zip(given) {
        if port.descriptor != *value.descriptor() {
            return Err(GraphError::ValueDescriptor {
                name: port.name.clone(),
                expected: port.descriptor.clone(),
                got: value.descriptor().clone(),
            });
        }
    }
    Ok(())
}

/// Returns how often each node's value is read: by needed nodes, as an output, or by an assignment.
fn use_counts(graph: &Graph) -> Vec<usize> {
    let mut uses = vec![0; graph.nodes.len()];
    graph.outputs.iter().for_each(|(_, node)| uses[node.index()] += 1);
    graph.assignments.iter().for_each(|(_, node)| uses[node.index()] += 1);
    for (position, node) in graph.nodes.iter().enumerate().rev() {
        if uses[position] > 0 {
            node.inputs.iter().for_each(|input| uses[input.index()] += 1);
        }
    }
    uses
}

fn computed_value(values: &[Option<InterpTensor>], node: NodeId) -> &InterpTensor {
    values[node.index()].as_ref().expect("a value is kept until its last use")
}
