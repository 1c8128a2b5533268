//! How long batches of a version take, by size: what decides on which thread the next one runs, and
//! whether a request would have its turn in time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limits::{QUICK_TIME_MAX, SLOW_TIME_MIN};

/// Sizes are told apart by their powers of two.
const SIZES: usize = 17;
/// The estimate moves by one in so many with each batch.
const STEP: u64 = 8;

/// The times that batches took, in nanoseconds, by size; 0 where nothing is known.
#[derive(Debug, Default)]
pub(crate) struct Pace([Times; SIZES]);

#[derive(Debug, Default)]
struct Times {
    /// A running median: what one more batch is likely to take. Threads that were kept from running for a while do not
    /// move it far; what is slow beyond doubt counts at once.
    median: AtomicU64,
    /// A running mean: what many more will take, each.
    mean: AtomicU64,
}

impl Pace {
    /// Remembers how long a batch of so many items took.
    pub(crate) fn took(&self, items: usize, time: Duration) {
        let now = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let times = &self.0[place(items)];
        // Two batches at a time may lose one of their times, which the next ones bring again.
        let before = times.median.load(Ordering::Relaxed);
        let step = before / STEP;
        let median = match () {
            () if before == 0 || time >= SLOW_TIME_MIN => now,
            () if now > before => now.min(before + step),
            () => now.max(before - step),
        };
        times.median.store(median, Ordering::Relaxed);
        let mean = match times.mean.load(Ordering::Relaxed) {
            0 => now,
            before => before - before / STEP + now / STEP,
        };
        times.mean.store(mean.max(1), Ordering::Relaxed);
    }

    /// Whether a batch of so many items is known to be so quick that it may keep a thread from serving connections.
    pub(super) fn is_quick(&self, items: usize) -> bool {
        known(&self.0[place(items)].median).is_some_and(|time| time <= QUICK_TIME_MAX)
    }

    /// What each of many items costs in batches of up to `most`, of the size that is best; none where nothing is known.
    pub(super) fn each(&self, most: usize) -> Option<Duration> {
        let sizes = 0..=place(most);
        sizes.filter_map(|size| Some(known(&self.0[size].mean)? / (1 << size))).min()
    }
}

fn known(nanoseconds: &AtomicU64) -> Option<Duration> {
    let nanoseconds = nanoseconds.load(Ordering::Relaxed);
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
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
    fn many_items_take_the_mean_of_what_they_took() {
        let pace = Pace::default();
        for turn in 0..100 {
            pace.took(1, Duration::from_millis(if turn % 4 == 0 { 7 } else { 3 }));
        }
        let each = pace.each(1).unwrap().as_micros();
        assert!((3_500..4_600).contains(&each), "a quarter takes 7 ms and the others 3: {each} us");
    }
}
