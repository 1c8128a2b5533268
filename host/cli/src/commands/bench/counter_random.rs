//! Random numbers from a counter, so that equal seeds give equal loads and equal samples.

use saggar_tensor::interp::philox4x32_10;

/// A stream of random numbers by Philox4x32-10. Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
/// SC11.
#[derive(Clone, Debug)]
pub(super) struct CounterRandom {
    key: [u32; 2],
    stream: u32,
    position: u64,
    block: [u32; 4],
}

impl CounterRandom {
    /// Returns the stream of this number. Streams of one seed are independent.
    pub(super) fn new(seed: u64, stream: u32) -> CounterRandom {
        CounterRandom { key: [seed as u32, (seed >> 32) as u32], stream, position: 0, block: [0; 4] }
    }

    pub(super) fn next_u32(&mut self) -> u32 {
        let (block, lane) = (self.position / 4, (self.position % 4) as usize);
        if lane == 0 {
            self.block = philox4x32_10([block as u32, (block >> 32) as u32, self.stream, 0], self.key);
        }
        self.position += 1;
        self.block[lane]
    }

    /// Returns a number in `[0, 1)`.
    pub(super) fn next_unit(&mut self) -> f64 {
        f64::from(self.next_u32()) / (f64::from(u32::MAX) + 1.0)
    }

    /// Returns a number below `bound`, which is at least 1.
    pub(super) fn next_below(&mut self, bound: usize) -> usize {
        (self.next_unit() * bound as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_seed_and_stream() {
        let numbers = |seed, stream| {
            let mut random = CounterRandom::new(seed, stream);
            (0..9).map(|_| random.next_u32()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1, 0), numbers(1, 0));
        assert!(numbers(1, 0) != numbers(1, 1) && numbers(1, 0) != numbers(2, 0));
        let mut random = CounterRandom::new(7, 0);
        let drawn: Vec<usize> = (0..400).map(|_| random.next_below(4)).collect();
        assert!((0..4).all(|number| drawn.iter().filter(|&&other| other == number).count() > 60));
    }
}
