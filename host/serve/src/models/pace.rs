//! How long batches of a version take, by size: what decides how many items go together, and on which thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limits::{QUICK_TIME_MAX, SLOW_TIME_MIN};

/// Sizes are told apart by their powers of two.
const SIZES: usize = 17;
/// The estimate moves by one in so many with each batch.
const STEP: u64 = 8;
/// One batch in so many may be larger than pays, so that it is known when it would.
const TRIES: u64 = 64;

/// A running median of the times that batches took, by size. Threads that were kept from running for a while do not move
/// it far, as they would a mean or a maximum; what is slow beyond doubt counts at once.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    nanoseconds: [AtomicU64; SIZES],
    batches: AtomicU64,
}

impl Pace {
    /// Remembers how long a batch of so many items took.
    pub(crate) fn took(&self, items: usize, time: Duration) {
        let now = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let slot = &self.nanoseconds[place(items)];
        let before = slot.load(Ordering::Relaxed);
        let step = before / STEP;
        let after = match () {
            () if before == 0 || time >= SLOW_TIME_MIN => now,
            () if now > before => now.min(before + step),
            () => now.max(before - step),
        };
        // Two batches at a time may lose one of their times, which the next ones bring again.
        slot.store(after, Ordering::Relaxed);
    }

    /// Whether a batch of so many items is known to be so quick that it may keep a thread from serving connections.
    pub(super) fn is_quick(&self, items: usize) -> bool {
        self.typical(place(items)).is_some_and(|time| time <= QUICK_TIME_MAX)
    }

    /// How many items to put together where `most` may be: as many as are quick, where more would cost as much each. A
    /// larger batch would then only have its first request wait for its last, and take more memory.
    pub(super) fn worthwhile(&self, most: usize) -> usize {
        let largest = place(most);
        let Some(whole) = self.typical(largest) else { return most };
        if whole <= QUICK_TIME_MAX || self.batches.fetch_add(1, Ordering::Relaxed) % TRIES == TRIES - 1 {
            return most;
        }
        let quick = (0..largest).rev().find(|&size| self.typical(size).is_some_and(|time| time <= QUICK_TIME_MAX));
        match quick.and_then(|size| Some((size, self.typical(size)?))) {
            // For each item, less than a quarter would be saved.
            Some((size, time)) if 4 * (whole.as_nanos() << size) > 3 * (time.as_nanos() << largest) => 1 << size,
            Some(_) | None => most,
        }
    }

    /// What an item costs at least in batches of up to `most`; none where nothing is known.
    pub(super) fn each(&self, most: usize) -> Option<Duration> {
        let sizes = 0..=place(most);
        sizes.filter_map(|size| Some(self.typical(size)? / (1 << size))).min()
    }

    fn typical(&self, size: usize) -> Option<Duration> {
        let nanoseconds = self.nanoseconds[size].load(Ordering::Relaxed);
        (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
    }
}

fn place(items: usize) -> usize {
    (items.max(1).next_power_of_two().trailing_zeros() as usize).min(SIZES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_usually_quick_is_quick() {
        let pace = Pace::default();
        assert!(!pace.is_quick(1), "nothing is known");
        pace.took(1, QUICK_TIME_MAX / 2);
        assert!(pace.is_quick(1) && !pace.is_quick(2), "each size for itself");
        pace.took(1, QUICK_TIME_MAX * 2);
        assert!(pace.is_quick(1), "one that was kept waiting says little");
        for _ in 0..20 {
            pace.took(1, QUICK_TIME_MAX * 2);
        }
        assert!(!pace.is_quick(1), "many say more");
        for _ in 0..20 {
            pace.took(1, QUICK_TIME_MAX / 2);
        }
        assert!(pace.is_quick(1));
        pace.took(1, SLOW_TIME_MIN);
        pace.took(1, QUICK_TIME_MAX / 2);
        assert!(!pace.is_quick(1), "a slow one counts at once");
        assert_eq!((place(0), place(1), place(3), place(4), place(usize::MAX / 2)), (0, 0, 2, 2, SIZES - 1));
    }

    #[test]
    fn an_item_costs_least_in_its_best_batch() {
        let pace = Pace::default();
        assert_eq!(pace.each(8), None);
        for (items, milliseconds) in [(1, 8), (4, 16), (32, 32)] {
            pace.took(items, Duration::from_millis(milliseconds));
        }
        assert_eq!(pace.each(1), Some(Duration::from_millis(8)));
        assert_eq!(pace.each(8), Some(Duration::from_millis(4)));
        assert_eq!(pace.each(32), Some(Duration::from_millis(1)));
    }

    #[test]
    fn larger_batches_are_for_models_that_gain_from_them() {
        let known = |times: &[(usize, u32)]| {
            let pace = Pace::default();
            for &(items, percent) in times {
                pace.took(items, QUICK_TIME_MAX * percent / 100);
            }
            pace
        };
        assert_eq!(known(&[(8, 80)]).worthwhile(32), 32, "not known yet");
        assert_eq!(known(&[(8, 20), (32, 80)]).worthwhile(32), 32, "quick");
        assert_eq!(known(&[(8, 80), (16, 160), (32, 320)]).worthwhile(32), 8, "no item gains");
        assert_eq!(known(&[(8, 80), (16, 90), (32, 120)]).worthwhile(32), 32, "each gains");
        assert_eq!(known(&[(8, 180), (32, 700)]).worthwhile(32), 32, "nothing is quick");
        let pace = known(&[(8, 80), (32, 320)]);
        let sizes: Vec<usize> = (0..2 * TRIES).map(|_| pace.worthwhile(32)).collect();
        assert_eq!(sizes.iter().filter(|&&size| size == 32).count(), 2, "now and then it is tried");
    }
}
