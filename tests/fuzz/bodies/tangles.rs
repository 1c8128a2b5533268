//! A generated graph of which much is read at once compiles for a GPU to a program that computes what the graph means.

use saggar_compile::CompileTarget;
use saggar_compile::reference::compare_with_interpreter;
use saggar_tensor::testgen::high_fan_in_graph;

/// Compiles the graph of a seed and compares what the programs compute.
///
/// # Panics
/// Where the statement above does not hold.
pub(crate) fn check(seed: u64) {
    let case = high_fan_in_graph(seed);
    let gpu = CompileTarget { chain_rows_min: 0, ..CompileTarget::gpu() };
    for target in [gpu, CompileTarget { kernel_values_max: 5, ..gpu }] {
        let compared = compare_with_interpreter(&case.verified_graph(), &case.inputs, &case.variables, &target);
        let compared = compared.unwrap_or_else(|error| panic!("{} is refused: {error}", case.name));
        compared.unwrap_or_else(|difference| panic!("{}: {difference}", case.name));
    }
}
