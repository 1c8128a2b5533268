//! The order of the feeds in the steps of an epoch.

/// Consecutive steps of one feed, which are shuffled as a unit. More than one, so that the device is busy while the
/// next call is prepared.
const CONSECUTIVE_STEPS: u64 = 4;

/// Returns the feed index of each step of an epoch; feed `i` has `steps[i]` steps. The order depends only on the seed
/// and the epoch.
pub(super) fn steps_of_epoch(steps: &[u64], seed: u64, epoch: u64) -> Vec<usize> {
    let rows = |(feed, &steps): (usize, &u64)| {
        let full = (0..steps / CONSECUTIVE_STEPS).map(move |_| (feed, CONSECUTIVE_STEPS));
        full.chain(Some((feed, steps % CONSECUTIVE_STEPS)).filter(|(_, rest)| *rest > 0))
    };
    let mut rows: Vec<(usize, u64)> = steps.iter().enumerate().flat_map(rows).collect();
    let mut random = SplitMixRng(seed ^ epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // Fisher-Yates shuffle. The modulo bias is below 2^-32 for any possible number of rows.
    for end in (1..rows.len()).rev() {
        rows.swap(end, (random.next() % (end as u64 + 1)) as usize);
    }
    rows.into_iter().flat_map(|(feed, steps)| (0..steps).map(move |_| feed)).collect()
}

/// The SplitMix64 generator. Source: Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014.
struct SplitMixRng(u64);

impl SplitMixRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feed_gets_all_its_steps_in_an_epoch() {
        let steps = [10, 0, 3, 25];
        let order = steps_of_epoch(&steps, 7, 0);
        for (feed, steps) in steps.into_iter().enumerate() {
            assert_eq!(order.iter().filter(|other| **other == feed).count() as u64, steps);
        }
        assert_eq!(order, steps_of_epoch(&steps, 7, 0));
        assert_ne!(order, steps_of_epoch(&steps, 7, 1));
        assert_ne!(order, steps_of_epoch(&steps, 8, 0));
    }

    #[test]
    fn a_single_feed_gets_every_step() {
        assert_eq!(steps_of_epoch(&[9], 1, 2), [0; 9]);
        assert!(steps_of_epoch(&[], 1, 2).is_empty());
    }
}
