//! Any bytes are refused as weights, or give variables as large as their descriptors say.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use saggar_store::models::read_weights;

fuzz_target!(|file: &[u8]| {
    let Ok(variables) = read_weights(&Bytes::copy_from_slice(file), &[]) else { return };
    for variable in variables {
        assert_eq!(variable.bytes.len(), variable.descriptor.bytes());
    }
});
