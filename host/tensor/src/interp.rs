//! The reference interpreter: naive loops that define what every operator means. Backends and gradients are tested
//! against it; it is never fast.
//!
//! Floats are computed in f64 and rounded to the node's data type once per node; sums are accumulated in f64. Integers
//! wrap in their own type. Nodes that neither an output nor an assignment needs are not computed.

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
use crate::graph::{Graph, Port};
use crate::op::{Op, Source};
use crate::verify::VerifiedGraph;
use crate::{Descriptor, NodeId};

pub use source::philox4x32_10;
pub use value::{Elements, Value};

/// What happens to a float result before the next operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Rounded to the node's data type: the definition of the operators.
    Stored,
    /// Kept as f64 whatever the data type: for finite differences, which rounding would drown.
    Exact,
}

/// The outputs of `graph`, in the graph's order, for these inputs; `variables` then hold what the graph assigned.
///
/// # Errors
/// `ValueCount` or `ValueDescriptor` if inputs or variables are not those that the graph declares.
pub fn evaluate(graph: &VerifiedGraph, inputs: &[Value], variables: &mut [Value]) -> Result<Vec<Value>, GraphError> {
    evaluate_with(graph, inputs, variables, Precision::Stored)
}

/// As [`evaluate`], with a choice of what happens to intermediate floats.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_with(
    graph: &VerifiedGraph,
    inputs: &[Value],
    variables: &mut [Value],
    precision: Precision,
) -> Result<Vec<Value>, GraphError> {
    let graph = graph.graph();
    check("inputs", &graph.inputs, inputs)?;
    check("variables", &graph.variables, variables)?;
    let mut uses = uses(graph);
    let mut values: Vec<Option<Value>> = vec![None; graph.nodes.len()];
    for (position, node) in graph.nodes.iter().enumerate() {
        if uses[position] == 0 {
            continue;
        }
        let value = match &node.op {
            Op::Source(Source::Input(input)) => inputs[*input as usize].clone(),
            Op::Source(Source::Variable(variable)) => variables[*variable as usize].clone(),
            Op::Source(Source::Constant(constant)) => {
                Value::from_bytes(node.descriptor.clone(), &graph.constants[*constant as usize])?
            }
            op @ (Op::Source(Source::Fill(_) | Source::Iota { .. } | Source::Random { .. })
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Select
            | Op::Reduce(_)
            | Op::Movement(_)
            | Op::Contract(_)
            | Op::Convolution(_)
            | Op::Index(_)) => {
                let operands: Vec<&Value> = node.inputs.iter().map(|&input| kept(&values, input)).collect();
                apply(op, &operands, &node.descriptor, precision)
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
    let outputs = graph.outputs.iter().map(|&(_, node)| kept(&values, node).clone()).collect();
    for &(variable, node) in &graph.assignments {
        variables[variable as usize] = kept(&values, node).clone();
    }
    Ok(outputs)
}

/// The result of one operator on values that inference has accepted for it. `descriptor` is what inference gave.
///
/// Inputs, constants and variables come from outside and are no operators in this sense.
pub fn apply(op: &Op, operands: &[&Value], descriptor: &Descriptor, precision: Precision) -> Value {
    let shape = &descriptor.shape;
    let elements = match op {
        Op::Source(Source::Fill(scalar)) => source::fill(*scalar, descriptor),
        Op::Source(Source::Iota { axis }) => source::iota(*axis, descriptor),
        Op::Source(Source::Random { stream, distribution }) => {
            source::random(operands[0], *stream, *distribution, shape)
        }
        Op::Source(Source::Input(_) | Source::Constant(_) | Source::Variable(_)) => {
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
    Value::stored(descriptor.clone(), elements, precision)
}

fn check(ports: &'static str, declared: &[Port], given: &[Value]) -> Result<(), GraphError> {
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

/// How often each node's value is read: by nodes that are themselves needed, as an output, or by an assignment.
fn uses(graph: &Graph) -> Vec<usize> {
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

fn kept(values: &[Option<Value>], node: NodeId) -> &Value {
    values[node.index()].as_ref().expect("a value is kept until its last use")
}
