//! Estimates of batch duration by batch size. They decide on which thread the next batch runs and whether a queued
//! request would meet its deadline.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limits::{QUICK_BATCH_TIME_MAX, SLOW_BATCH_TIME_MIN};

/// Batch sizes are grouped by powers of two.
const SIZE_CLASSES: usize = 17;
/// Each batch moves the estimate by 1 / `SMOOTHING_DIVISOR`.
const SMOOTHING_DIVISOR: u64 = 8;

/// Estimated durations of batches by size class, in nanoseconds. 0 means unknown.
#[derive(Debug, Default)]
pub(crate) struct LatencyEstimator([LatencyEstimate; SIZE_CLASSES]);

#[derive(Debug, Default)]
struct LatencyEstimate {
    /// A running median: the likely duration of one more batch. A thread that was descheduled for a while moves it
    /// little, but a clearly slow batch counts at once.
    median: AtomicU64,
    /// A running mean: the expected duration per batch over many.
    mean: AtomicU64,
}

impl LatencyEstimator {
    /// Records the duration of a batch of `items` items.
    pub(crate) fn record(&self, items: usize, time: Duration) {
        let now = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let times = &self.0[size_class(items)];
        // Concurrent batches can lose one of their updates, which later batches make up for.
        let before = times.median.load(Ordering::Relaxed);
        let step = before / SMOOTHING_DIVISOR;
        let median = match () {
            () if before == 0 || time >= SLOW_BATCH_TIME_MIN => now,
            () if now > before => now.min(before + step),
            () => now.max(before - step),
        };
        times.median.store(median, Ordering::Relaxed);
        let mean = match times.mean.load(Ordering::Relaxed) {
            0 => now,
            before => before - before / SMOOTHING_DIVISOR + now / SMOOTHING_DIVISOR,
        };
        times.mean.store(mean.max(1), Ordering::Relaxed);
    }

    /// Returns whether a batch of `items` items is known to be short enough to occupy a thread that serves connections.
    pub(crate) fn is_quick(&self, items: usize) -> bool {
        nonzero_duration(&self.0[size_class(items)].median).is_some_and(|time| time <= QUICK_BATCH_TIME_MAX)
    }

    /// Returns the time per item in batches of up to `most` items, at the best batch size, or `None` if nothing is
    /// known.
    pub(crate) fn best_time_per_item(&self, most: usize) -> Option<Duration> {
        let sizes = 0..=size_class(most);
        sizes.filter_map(|size| Some(nonzero_duration(&self.0[size].mean)? / (1 << size))).min()
    }
}

fn nonzero_duration(nanoseconds: &AtomicU64) -> Option<Duration> {
    let nanoseconds = nanoseconds.load(Ordering::Relaxed);
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
}

fn size_class(items: usize) -> usize {
    (items.max(1).next_power_of_two().trailing_zeros() as usize).min(SIZE_CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_does_not_change_whether_a_batch_size_is_quick() {
        let pace = LatencyEstimator::default();
        assert!(!pace.is_quick(1), "nothing is known");
        pace.record(1, QUICK_BATCH_TIME_MAX / 2);
        assert!(pace.is_quick(1) && !pace.is_quick(2), "each size for itself");
        pace.record(1, QUICK_BATCH_TIME_MAX * 2);
        assert!(pace.is_quick(1), "one that was kept waiting says little");
        for _ in 0..20 {
            pace.record(1, QUICK_BATCH_TIME_MAX * 2);
        }
        assert!(!pace.is_quick(1), "many say more");
        for _ in 0..20 {
            pace.record(1, QUICK_BATCH_TIME_MAX / 2);
        }
        assert!(pace.is_quick(1));
        pace.record(1, SLOW_BATCH_TIME_MIN);
        pace.record(1, QUICK_BATCH_TIME_MAX / 2);
        assert!(!pace.is_quick(1), "a slow one counts at once");
        assert_eq!(
            (size_class(0), size_class(1), size_class(3), size_class(4), size_class(usize::MAX / 2)),
            (0, 0, 2, 2, SIZE_CLASSES - 1)
        );
    }

    #[test]
    fn time_per_item_is_that_of_the_best_batch_size() {
        let pace = LatencyEstimator::default();
        assert_eq!(pace.best_time_per_item(8), None);
        for (items, milliseconds) in [(1, 8), (4, 16), (32, 32)] {
            pace.record(items, Duration::from_millis(milliseconds));
        }
        assert_eq!(pace.best_time_per_item(1), Some(Duration::from_millis(8)));
        assert_eq!(pace.best_time_per_item(8), Some(Duration::from_millis(4)));
        assert_eq!(pace.best_time_per_item(32), Some(Duration::from_millis(1)));
    }

    #[test]
    fn time_per_item_follows_the_mean_of_past_batches() {
        let pace = LatencyEstimator::default();
        for turn in 0..100 {
            pace.record(1, Duration::from_millis(if turn % 4 == 0 { 7 } else { 3 }));
        }
        let each = pace.best_time_per_item(1).unwrap().as_micros();
        assert!((3_500..4_600).contains(&each), "a quarter takes 7 ms and the others 3: {each} us");
    }
}
