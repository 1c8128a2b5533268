//! Graphs and programs as they go through the pipes. Constants go to the child beside their graph, and do not come back:
//! the parent puts its own into the program.

use std::collections::HashMap;
use std::sync::Arc;

use saggar_compile::{CompileTarget, Program};
use saggar_tensor::{Descriptor, Graph, VerifiedGraph, verify};
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::task::Failure;
use crate::bindings::tensors::ErrorCode;
use crate::fault::Fault;

/// A constant of a program.
#[derive(Debug, Serialize, Deserialize)]
enum Constant {
    /// The graph's constant of this number.
    Given(u32),
    /// One that the compiler made.
    Made(Vec<u8>),
}

/// An answer: the program without its constants, and where those come from.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    program: Program,
    constants: Vec<(Descriptor, Constant)>,
}

/// Returns how much work a graph is to compile: its nodes, operands and ports together.
pub(crate) fn work(graph: &Graph) -> usize {
    let operands: usize = graph.nodes.iter().map(|node| node.inputs.len()).sum();
    let ports = graph.inputs.len() + graph.variables.len() + graph.outputs.len() + graph.assignments.len();
    graph.nodes.len() + operands + ports
}

/// The first part of a request; the graph's constants follow.
pub(super) fn header(graph: &VerifiedGraph, target: &CompileTarget) -> Result<Vec<u8>, postcard::Error> {
    postcard::to_allocvec(&(graph.graph(), target))
}

/// Compiles the graph of a request.
pub(super) fn compile(parts: Vec<Vec<u8>>) -> Result<Vec<bytes::Bytes>, Failure> {
    let other = |error: postcard::Error| Failure::Refused(Refusal::other(error));
    let mut parts = parts.into_iter();
    let header = parts.next().unwrap_or_default();
    let (mut graph, target): (Graph, CompileTarget) = postcard::from_bytes(&header).map_err(other)?;
    graph.constants = parts.map(Arc::from).collect();
    let verified = verify(graph).map_err(|error| Failure::Refused(Refusal::other(error)))?;
    let mut program = saggar_compile::compile(&verified, &target).map_err(|error| Failure::Refused(refuse(error)))?;
    let given: HashMap<usize, u32> = verified.constants.iter().map(address).zip(0..).collect();
    let constants = std::mem::take(&mut program.constants).into_iter().map(|(descriptor, bytes)| {
        let given = given.get(&address(&bytes)).copied();
        (descriptor, given.map_or_else(|| Constant::Made(bytes.to_vec()), Constant::Given))
    });
    let answer = Answer { constants: constants.collect(), program };
    Ok(vec![postcard::to_allocvec(&answer).map_err(other)?.into()])
}

/// What tells one shared constant from another.
fn address(constant: &Arc<[u8]>) -> usize {
    Arc::as_ptr(constant).cast::<u8>() as usize
}

fn refuse(error: saggar_compile::CompileError) -> Refusal {
    match Fault::from(error) {
        Fault::Answer(error) => Refusal::Graph {
            out_of_memory: error.code == ErrorCode::OutOfMemory,
            message: error.message,
            place: error.place,
        },
        fault => Refusal::other(format!("{fault:?}")),
    }
}

/// Returns the program of an answer with the constants of the graph that it was made of, or `None` if it is no answer for
/// this graph.
pub(super) fn program(answer: &[u8], graph: &Graph) -> Option<Program> {
    let Answer { mut program, constants } = postcard::from_bytes(answer).ok()?;
    let constant = |(descriptor, constant): (Descriptor, Constant)| {
        let bytes = match constant {
            Constant::Given(number) => Arc::clone(graph.constants.get(number as usize)?),
            Constant::Made(bytes) => Arc::from(bytes),
        };
        (descriptor.bytes() == bytes.len()).then_some((descriptor, bytes))
    };
    program.constants = constants.into_iter().map(constant).collect::<Option<_>>()?;
    Some(program)
}

#[cfg(test)]
mod tests {
    use saggar_tensor::{DType, GraphBuilder, Shape};

    use super::*;

    fn graph() -> Graph {
        let mut g = GraphBuilder::new();
        let descriptor = Descriptor::new(DType::F32, Shape::new([2, 2]).unwrap());
        let x = g.input("x", descriptor.clone()).unwrap();
        let unused = g.constant(descriptor.clone(), vec![7; 16]).unwrap();
        let weight = g.constant(descriptor, vec![1; 16]).unwrap();
        let _ = unused;
        let y = g.matmul(x, weight).unwrap();
        g.output("y", y).unwrap();
        g.finish()
    }

    #[test]
    fn a_program_comes_through_the_pipes_as_it_is() {
        for target in [CompileTarget::cpu(), CompileTarget::gpu()] {
            let verified = verify(graph()).unwrap();
            let mut parts = vec![header(&verified, &target).unwrap()];
            parts.extend(verified.constants.iter().map(|constant| constant.to_vec()));
            let Ok(answer) = compile(parts) else { panic!("it compiles") };
            let received = program(&answer.concat(), &verified).unwrap();
            let expected = saggar_compile::compile(&verified, &target).unwrap();
            assert_eq!(received, expected);
            for ((_, received), (_, expected)) in received.constants.iter().zip(&expected.constants) {
                assert!(Arc::ptr_eq(received, expected), "constants are shared, not copied");
            }
        }
    }

    #[test]
    fn an_answer_for_another_graph_is_not_used() {
        let verified = verify(graph()).unwrap();
        let mut parts = vec![header(&verified, &CompileTarget::cpu()).unwrap()];
        parts.extend(verified.constants.iter().map(|constant| constant.to_vec()));
        let Ok(answer) = compile(parts) else { panic!("it compiles") };
        assert!(program(&answer.concat(), &Graph::default()).is_none());
        assert!(program(b"nonsense", &verified).is_none());
    }
}
