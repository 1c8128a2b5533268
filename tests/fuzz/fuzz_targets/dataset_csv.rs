//! Runs a body of datasets on a fuzzer's inputs; `tests/tests/faults/mutations.rs` has a short form of it.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "each target runs one of the bodies")]
#[path = "../bodies/dataset_files.rs"]
mod body;

fuzz_target!(|file: &[u8]| {
    body::check_csv(file);
});
