//! The complete list of cases that are not run, with reasons.

use std::collections::BTreeSet;

use super::WebnnCase;

/// Data types that tensors here do not have.
const TYPES: [(&str, &str); 2] =
    [("int4", "4-bit integers have no data type here"), ("uint4", "4-bit integers have no data type here")];

/// Cases by name.
const CASES: [(&str, &str); 2] = [
    (
        "l2Pool2d float32 4D tensor options.outputSizes ignores options.roundingType=floor",
        "some windows are expected without their square root",
    ),
    (
        "batchNormalization options.axis=0 + gelu",
        "-0.03595118 is expected where -0.03595130 is exact, 34 units away; 24 are allowed",
    ),
];

/// Returns the entry that matches the case and the reason, or `None` if the case is run.
pub(super) fn unsupported_entry(case: &WebnnCase) -> Option<(&'static str, &'static str)> {
    let types = TYPES.iter().find(|(dtype, _)| case.data_types().any(|found| found == *dtype));
    let named = CASES.iter().find(|(name, _)| case.name == *name);
    types.or(named).copied()
}

/// Returns the entries that are not in `matched`: they are obsolete.
pub(super) fn dead_entries(matched: &BTreeSet<&str>) -> Vec<&'static str> {
    TYPES.iter().chain(&CASES).map(|(entry, _)| *entry).filter(|entry| !matched.contains(entry)).collect()
}
