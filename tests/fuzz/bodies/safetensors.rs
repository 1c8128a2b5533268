//! Checks that any bytes are refused as weights, or give variables with the sizes of their descriptors.

use bytes::Bytes;
use saggar_store::models::read_weights;

/// Reads a file of weights.
///
/// # Panics
/// If the size of a variable does not match its descriptor.
pub(crate) fn check(file: &[u8]) {
    let Ok(variables) = read_weights(&Bytes::copy_from_slice(file), &[]) else { return };
    for variable in variables {
        assert_eq!(variable.bytes.len(), variable.descriptor.bytes());
    }
}
