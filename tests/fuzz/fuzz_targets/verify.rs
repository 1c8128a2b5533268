//! Runs the body of the same name on a fuzzer's inputs; `tests/tests/faults/mutations.rs` has a short form of it.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/verify.rs"]
mod body;

fuzz_target!(|text: &str| body::check(text));
