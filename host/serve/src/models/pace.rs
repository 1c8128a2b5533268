//! How long batches of a version take, by size: what decides on which thread the next one runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limits::QUICK_TIME_MAX;

/// Sizes are told apart by their powers of two.
const SIZES: usize = 17;

/// A slowly forgotten maximum of the times that batches took, by size.
#[derive(Debug, Default)]
pub(super) struct Pace([AtomicU64; SIZES]);

impl Pace {
    /// Remembers how long a batch of so many items took. A slow one counts at once; quick ones make it forgotten over
    /// some dozens.
    pub(super) fn took(&self, items: usize, time: Duration) {
        let now = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let slot = &self.0[place(items)];
        let before = slot.load(Ordering::Relaxed);
        // Two batches at a time may lose one of their times, which the next ones bring again.
        slot.store(if now >= before { now } else { before - (before - now) / 16 }, Ordering::Relaxed);
    }

    /// Whether a batch of so many items is known to be so quick that it may keep a thread from serving connections.
    pub(super) fn is_quick(&self, items: usize) -> bool {
        let nanoseconds = self.0[place(items)].load(Ordering::Relaxed);
        nanoseconds > 0 && Duration::from_nanos(nanoseconds) <= QUICK_TIME_MAX
    }
}

fn place(items: usize) -> usize {
    (items.max(1).next_power_of_two().trailing_zeros() as usize).min(SIZES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_quick_is_quick() {
        let pace = Pace::default();
        assert!(!pace.is_quick(1), "nothing is known");
        pace.took(1, QUICK_TIME_MAX / 2);
        assert!(pace.is_quick(1) && !pace.is_quick(2), "each size for itself");
        pace.took(1, QUICK_TIME_MAX * 100);
        pace.took(1, QUICK_TIME_MAX / 2);
        assert!(!pace.is_quick(1), "a slow one is remembered");
        for _ in 0..200 {
            pace.took(1, QUICK_TIME_MAX / 4);
        }
        assert!(pace.is_quick(1), "and forgotten after many quick ones");
        assert_eq!((place(0), place(1), place(3), place(4), place(usize::MAX / 2)), (0, 0, 2, 2, SIZES - 1));
    }
}
