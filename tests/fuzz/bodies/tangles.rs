//! A generated graph of which much is read at once compiles for a GPU to a program that computes what the graph means.

use saggar_compile::Target;
use saggar_compile::reference::compare;
use saggar_tensor::arbitrary::tangle;

/// Compiles the graph of a seed and compares what the programs compute.
///
/// # Panics
/// Where the statement above does not hold.
pub(crate) fn check(seed: u64) {
    let case = tangle(seed);
    let gpu = Target { chain_rows_min: 0, ..Target::gpu() };
    for target in [gpu, Target { kernel_values_max: 5, ..gpu }] {
        let compared = compare(&case.verified(), &case.inputs, &case.variables, &target);
        let compared = compared.unwrap_or_else(|error| panic!("{} is refused: {error}", case.name));
        compared.unwrap_or_else(|difference| panic!("{}: {difference}", case.name));
    }
}
