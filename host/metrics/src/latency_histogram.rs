//! A histogram of durations with fine buckets, for quantiles. The histograms of the table have few buckets, because each is
//! a series for scrapers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of buckets: 8 for each power of two microseconds, up to about two minutes. Longer durations are in the last.
pub const LATENCY_BUCKETS: usize = 200;

/// Returns the bucket of a duration in microseconds. Up to 15 each value has a bucket; above, each has an eighth of the
/// range to the next power of two.
fn bucket_index(microseconds: u64) -> usize {
    if microseconds < 8 {
        return usize::try_from(microseconds).unwrap_or(0);
    }
    let exponent = u64::from(microseconds.ilog2());
    let index = (exponent - 2) * 8 + ((microseconds >> (exponent - 3)) & 7);
    usize::try_from(index).unwrap_or(usize::MAX).min(LATENCY_BUCKETS - 1)
}

/// Returns the middle of a bucket in seconds.
fn bucket_seconds(index: usize) -> f64 {
    if index < 8 {
        return (index as f64 + 0.5) * 1e-6;
    }
    let width = (1_u64 << (index / 8 - 1)) as f64;
    (((8 + index % 8) as f64) + 0.5) * width * 1e-6
}

/// Counts of durations, from any thread without a lock.
#[derive(Debug)]
pub struct LatencyHistogram([AtomicU64; LATENCY_BUCKETS]);

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl LatencyHistogram {
    /// Counts a duration.
    pub fn observe(&self, time: Duration) {
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0[bucket_index(microseconds)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> LatencyCounts {
        LatencyCounts(self.0.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect())
    }
}

/// The counts of a [`LatencyHistogram`], or those of a time span. The default has no durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyCounts(Vec<u64>);

impl LatencyCounts {
    /// Returns the durations that were counted after `before`. Counts below those of `before` are of another histogram,
    /// and all are returned.
    pub fn since(&self, before: &LatencyCounts) -> LatencyCounts {
        let earlier = |at: usize| before.0.get(at).copied().unwrap_or(0);
        if self.0.iter().enumerate().any(|(at, count)| *count < earlier(at)) {
            return self.clone();
        }
        LatencyCounts(self.0.iter().enumerate().map(|(at, count)| count - earlier(at)).collect())
    }

    /// Returns the number of durations.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns a quantile in seconds, within 7 %, or `None` without durations. `quantile` is from 0 to 1.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let total = self.total();
        // The nearest rank: the smallest duration that at least this share does not exceed.
        let rank = ((quantile * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut below = 0;
        let reaches = |count: &u64| {
            below += count;
            below >= rank
        };
        self.0.iter().position(reaches).map(bucket_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_their_middle_is_within_seven_percent() {
        let mut last = 0;
        for microseconds in (1..2_000).chain((2_000..100_000_000).step_by(9_973)) {
            let index = bucket_index(microseconds);
            assert!(index == last || index == last + 1 || microseconds > 2_000 && index >= last, "{microseconds}");
            last = index;
            let error = (bucket_seconds(index) / (microseconds as f64 * 1e-6) - 1.0).abs();
            assert!(microseconds < 8 || error <= 0.07, "{microseconds}: {error}");
        }
        assert_eq!(bucket_index(u64::MAX), LATENCY_BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_of_the_durations_since_an_earlier_count() {
        let histogram = LatencyHistogram::default();
        assert_eq!(histogram.counts().quantile(0.5), None);
        histogram.observe(Duration::from_secs(10));
        let before = histogram.counts();
        (1..=100).for_each(|milliseconds| histogram.observe(Duration::from_millis(milliseconds)));
        let span = histogram.counts().since(&before);
        assert_eq!(span.total(), 100);
        for (quantile, expected) in [(0.0, 0.001), (0.5, 0.05), (0.99, 0.099), (1.0, 0.1)] {
            let found = span.quantile(quantile).unwrap();
            assert!((found / expected - 1.0).abs() <= 0.07, "{quantile}: {found}, not {expected}");
        }
        // A histogram that was made again has fewer counts than before.
        assert_eq!(before.since(&histogram.counts()), before);
    }
}
