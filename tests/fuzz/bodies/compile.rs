//! Checks that a verified graph compiles for both kinds of device to a program with the results of the interpreter, bit
//! for bit.

use saggar_compile::{CompileError, CompileTarget};
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::text::parse;
use saggar_tensor::{Descriptor, Graph, GraphPort, verify};
use saggar_testgen::CaseRng;
use saggar_testgen::reference::compare_with_interpreter;

/// Maximum elements of all nodes together; more would only take longer.
const ELEMENTS_MAX: usize = 1 << 12;
/// Maximum nodes of a graph.
const NODES_MAX: usize = 64;

const WORDS: CompileTarget =
    CompileTarget { slab_bytes_max: 1 << 20, binding_bytes_max: 1 << 10, chain_rows_min: 0, ..CompileTarget::gpu() };

fn is_small(graph: &Graph) -> bool {
    let elements = graph.nodes.iter().map(|node| node.descriptor.shape.elements());
    graph.nodes.len() <= NODES_MAX && elements.fold(0usize, usize::saturating_add) <= ELEMENTS_MAX
}

fn random_values(random: &mut CaseRng, ports: &[GraphPort]) -> Vec<InterpTensor> {
    let value = |random: &mut CaseRng, descriptor: &Descriptor| {
        let numbers = (0..descriptor.shape.elements()).map(|_| random.float(-4.0, 4.0).round() / 2.0);
        let numbers: Vec<f64> = if descriptor.dtype.is_float() {
            numbers.collect()
        } else {
            numbers.map(|number| number.abs().floor()).collect()
        };
        InterpTensor::from_numbers(descriptor.dtype, descriptor.shape.clone(), &numbers).expect("as many as there are")
    };
    ports.iter().map(|port| value(random, &port.descriptor)).collect()
}

/// Compiles the graph in a text, if it is small enough, and compares the results of the programs.
///
/// # Panics
/// If a verified graph does not compile, or a result differs.
pub(crate) fn check(text: &str) {
    let Ok(graph) = parse(text) else { return };
    if !is_small(&graph) {
        return;
    }
    let Ok(graph) = verify(graph) else { return };
    let random = &mut CaseRng::new(text.len() as u64);
    let (inputs, variables) =
        (random_values(random, &graph.graph().inputs), random_values(random, &graph.graph().variables));
    for target in [CompileTarget::cpu(), WORDS] {
        match compare_with_interpreter(&graph, &inputs, &variables, &target) {
            Ok(compared) => drop(compared.unwrap_or_else(|difference| panic!("{difference}"))),
            Err(CompileError::ValueTooLarge { .. }) => {}
            Err(error) => panic!("a verified graph is refused: {error}"),
        }
    }
}
