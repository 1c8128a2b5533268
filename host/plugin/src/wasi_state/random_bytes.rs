//! Random bytes that depend only on a seed.

use saggar_tensor::interp::philox4x32_10;

/// Distinguishes these numbers from others with the same seed.
const STREAM: u32 = u32::from_le_bytes(*b"WASI");

/// A sequence of random bytes: the blocks of Philox4x32-10, with the seed as its key. Not for cryptography.
#[derive(Debug)]
pub(crate) struct RandomBytes {
    seed: u64,
    blocks: u64,
}

impl RandomBytes {
    pub(crate) fn new(seed: u64) -> RandomBytes {
        RandomBytes { seed, blocks: 0 }
    }

    /// Returns the next `count` bytes.
    pub(crate) fn next_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count.next_multiple_of(16));
        while bytes.len() < count {
            bytes.extend(self.next_block().into_iter().flat_map(u32::to_le_bytes));
        }
        bytes.truncate(count);
        bytes
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        let [low, high, ..] = self.next_block();
        u64::from(low) | u64::from(high) << 32
    }

    fn next_block(&mut self) -> [u32; 4] {
        let counter = [self.blocks as u32, (self.blocks >> 32) as u32, STREAM, 0];
        self.blocks += 1;
        philox4x32_10(counter, [self.seed as u32, (self.seed >> 32) as u32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_depend_only_on_the_seed() {
        let bytes = |seed| RandomBytes::new(seed).next_bytes(40);
        assert_eq!(bytes(1), bytes(1));
        assert_ne!(bytes(1), bytes(2));
        assert_ne!(bytes(1), bytes(1 << 32 | 1), "both halves of the seed count");
        let mut both = RandomBytes::new(1);
        assert_ne!(both.next_bytes(16), both.next_bytes(16), "the sequence goes on");
        assert_eq!(both.next_bytes(3).len(), 3);
    }
}
