//! Checks that a generated graph with many simultaneous reads compiles for a GPU to a program with the interpreter's
//! results.

use saggar_compile::CompileTarget;
use saggar_testgen::high_fan_in_graph;
use saggar_testgen::reference::compare_with_interpreter;

/// Compiles the graph of a seed and compares the results of the programs.
///
/// # Panics
/// If the graph does not compile, or a result differs.
pub(crate) fn check(seed: u64) {
    let case = high_fan_in_graph(seed);
    let gpu = CompileTarget { chain_rows_min: 0, ..CompileTarget::gpu() };
    for target in [gpu, CompileTarget { kernel_values_max: 5, ..gpu }] {
        let compared = compare_with_interpreter(&case.verified_graph(), &case.inputs, &case.variables, &target);
        let compared = compared.unwrap_or_else(|error| panic!("{} is refused: {error}", case.name));
        compared.unwrap_or_else(|difference| panic!("{}: {difference}", case.name));
    }
}
