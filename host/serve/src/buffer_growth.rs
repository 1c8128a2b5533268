//! Growth of buffers whose final size is unknown and that are charged to a client.

use crate::limits::BODY_GROWTH_BYTES;

/// Returns the next capacity of a buffer that must hold `length` bytes and at most `length_max`.
pub(crate) fn grown_capacity(capacity: usize, length: usize, length_max: usize) -> usize {
    // Doubles while the buffer is small, to copy rarely. Then grows by a fraction, to charge little unused memory.
    let step = capacity.clamp(4 << 10, BODY_GROWTH_BYTES.max(capacity / 4));
    (capacity + step).min(length_max).max(length)
}
