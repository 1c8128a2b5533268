//! Encodes graphs and programs for the pipes. Constants are sent to the child after their graph but not returned: the
//! parent inserts its own copies into the program.

use std::collections::HashMap;
use std::sync::Arc;

use saggar_compile::{CompileTarget, Program};
use saggar_tensor::{Descriptor, Graph, VerifiedGraph, verify};
use serde::{Deserialize, Serialize};

use super::refusal::ChildRefusal;
use crate::guest_error_code::GuestErrorCode;
use crate::host_error::HostError;

/// A constant of a program.
#[derive(Debug, Serialize, Deserialize)]
enum ProgramConstant {
    /// The graph's constant with this index.
    Given(u32),
    /// A constant that the compiler created.
    Made(Vec<u8>),
}

/// An answer: the program without its constants, and the source of each constant.
#[derive(Debug, Serialize, Deserialize)]
struct CompiledGraphAnswer {
    program: Program,
    constants: Vec<(Descriptor, ProgramConstant)>,
}

/// Returns the work of compiling a graph: the number of its nodes, operands and ports.
pub(crate) fn graph_work(graph: &Graph) -> usize {
    let operands: usize = graph.nodes.iter().map(|node| node.inputs.len()).sum();
    let ports = graph.inputs.len() + graph.variables.len() + graph.outputs.len() + graph.assignments.len();
    graph.nodes.len() + operands + ports
}

/// Returns the first part of a request; the graph's constants follow.
pub(super) fn request_header(graph: &VerifiedGraph, target: &CompileTarget) -> Result<Vec<u8>, postcard::Error> {
    postcard::to_allocvec(&(graph.graph(), target))
}

/// Compiles the graph of a request.
pub(super) fn compile_request(parts: Vec<Vec<u8>>) -> Result<Vec<bytes::Bytes>, ChildRefusal> {
    let other = |error: postcard::Error| ChildRefusal::other(error);
    let mut parts = parts.into_iter();
    let header = parts.next().unwrap_or_default();
    let (mut graph, target): (Graph, CompileTarget) = postcard::from_bytes(&header).map_err(other)?;
    graph.constants = parts.map(Arc::from).collect();
    let verified = verify(graph).map_err(ChildRefusal::other)?;
    let mut program = saggar_compile::compile(&verified, &target).map_err(graph_refusal)?;
    let given: HashMap<usize, u32> = verified.constants.iter().map(constant_address).zip(0..).collect();
    let constants = std::mem::take(&mut program.constants).into_iter().map(|(descriptor, bytes)| {
        let given = given.get(&constant_address(&bytes)).copied();
        (descriptor, given.map_or_else(|| ProgramConstant::Made(bytes.to_vec()), ProgramConstant::Given))
    });
    let answer = CompiledGraphAnswer { constants: constants.collect(), program };
    Ok(vec![postcard::to_allocvec(&answer).map_err(other)?.into()])
}

/// Returns the address that identifies a shared constant.
fn constant_address(constant: &Arc<[u8]>) -> usize {
    Arc::as_ptr(constant).cast::<u8>() as usize
}

fn graph_refusal(error: saggar_compile::CompileError) -> ChildRefusal {
    match HostError::from(error) {
        HostError::Answer(error) => ChildRefusal::Graph {
            out_of_memory: error.code == GuestErrorCode::OutOfMemory,
            message: error.message,
            place: error.place,
        },
        fault => ChildRefusal::other(format!("{fault:?}")),
    }
}

/// Returns the program of an answer with the constants of its graph, or `None` if the answer does not match this graph.
pub(super) fn decode_program(answer: &[u8], graph: &Graph) -> Option<Program> {
    let CompiledGraphAnswer { mut program, constants } = postcard::from_bytes(answer).ok()?;
    let constant = |(descriptor, constant): (Descriptor, ProgramConstant)| {
        let bytes = match constant {
            ProgramConstant::Given(number) => Arc::clone(graph.constants.get(number as usize)?),
            ProgramConstant::Made(bytes) => Arc::from(bytes),
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
    fn a_program_round_trips_through_a_compile_child() {
        for target in [CompileTarget::cpu(), CompileTarget::gpu()] {
            let verified = verify(graph()).unwrap();
            let mut parts = vec![request_header(&verified, &target).unwrap()];
            parts.extend(verified.constants.iter().map(|constant| constant.to_vec()));
            let Ok(answer) = compile_request(parts) else { panic!("it compiles") };
            let received = decode_program(&answer.concat(), &verified).unwrap();
            let expected = saggar_compile::compile(&verified, &target).unwrap();
            assert_eq!(received, expected);
            for ((_, received), (_, expected)) in received.constants.iter().zip(&expected.constants) {
                assert!(Arc::ptr_eq(received, expected), "constants are shared, not copied");
            }
        }
    }

    #[test]
    fn an_answer_for_another_graph_is_rejected() {
        let verified = verify(graph()).unwrap();
        let mut parts = vec![request_header(&verified, &CompileTarget::cpu()).unwrap()];
        parts.extend(verified.constants.iter().map(|constant| constant.to_vec()));
        let Ok(answer) = compile_request(parts) else { panic!("it compiles") };
        assert!(decode_program(&answer.concat(), &Graph::default()).is_none());
        assert!(decode_program(b"nonsense", &verified).is_none());
    }
}
