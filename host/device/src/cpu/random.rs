//! Philox4x32-10. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

/// Returns four random words for a counter and a key.
pub(super) fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
        }
        let a = u64::from(counter[0]) * 0xD251_1F53;
        let b = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
    }
    counter
}

/// The random words of one key and stream by element. Four neighbours share a counter.
pub(super) struct PhiloxStream {
    key: [u32; 2],
    step: [u32; 2],
    stream: u32,
    group: Option<(u32, [u32; 4])>,
}

impl PhiloxStream {
    /// Returns a stream. `key` is seed low, seed high, step low, step high.
    pub(super) fn new(key: [u32; 4], stream: u32) -> PhiloxStream {
        PhiloxStream { key: [key[0], key[1]], step: [key[2], key[3]], stream, group: None }
    }

    /// Returns the word of element `index`.
    pub(super) fn word_at(&mut self, index: i64) -> u32 {
        let counter = (index >> 2) as u32;
        let words = match self.group {
            Some((group, words)) if group == counter => words,
            Some(_) | None => {
                let words = philox([counter, self.step[0], self.step[1], self.stream], self.key);
                self.group = Some((counter, words));
                words
            }
        };
        words[(index & 3) as usize]
    }
}

/// Returns a `float32` in `[0, 1)` from the upper 24 bits.
pub(super) fn uniform(bits: u32) -> f32 {
    (bits >> 8) as f32 * (1.0 / 16_777_216.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_matches_the_random123_test_vectors() {
        // Test vectors: Random123's kat_vectors, philox 4x32 10.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }
}
