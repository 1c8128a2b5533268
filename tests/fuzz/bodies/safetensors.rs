//! Any bytes are refused as weights, or give variables as large as their descriptors say.

use bytes::Bytes;
use saggar_store::models::read_weights;

/// Reads a file of weights.
///
/// # Panics
/// Where the statement above does not hold.
pub(crate) fn check(file: &[u8]) {
    let Ok(variables) = read_weights(&Bytes::copy_from_slice(file), &[]) else { return };
    for variable in variables {
        assert_eq!(variable.bytes.len(), variable.descriptor.bytes());
    }
}
