//! How long batches of a version take, by size: what decides on which thread the next one runs, and
//! whether a request would have its turn in time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limits::{QUICK_TIME_MAX, SLOW_TIME_MIN};

/// Sizes are told apart by their powers of two.
const SIZES: usize = 17;
/// The estimate moves by one in so many with each batch.
const STEP: u64 = 8;

/// A running median of the times that batches took, by size. Threads that were kept from running for a while do not move
/// it far, as they would a mean or a maximum; what is slow beyond doubt counts at once.
#[derive(Debug, Default)]
pub(crate) struct Pace([AtomicU64; SIZES]);

impl Pace {
    /// Remembers how long a batch of so many items took.
    pub(crate) fn took(&self, items: usize, time: Duration) {
        let now = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let slot = &self.0[place(items)];
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

    /// What an item costs at least in batches of up to `most`; none where nothing is known.
    pub(super) fn each(&self, most: usize) -> Option<Duration> {
        let sizes = 0..=place(most);
        sizes.filter_map(|size| Some(self.typical(size)? / (1 << size))).min()
    }

    fn typical(&self, size: usize) -> Option<Duration> {
        let nanoseconds = self.0[size].load(Ordering::Relaxed);
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
}
