//! Statistics of a version since it was loaded, counted without a lock: requests, executions and their durations.
//!
//! Durations of requests are per request. An execution is shared by all requests of its batch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::limits::BATCHES_COUNTED_MAX;

/// A count of events and the sum of their durations.
#[derive(Debug, Default)]
pub struct DurationCounter {
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

/// A snapshot of a [`DurationCounter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationSum {
    /// Number of events.
    pub count: u64,
    /// Sum of their durations in nanoseconds.
    pub nanoseconds: u64,
}

impl DurationCounter {
    fn add(&self, time: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the current values.
    pub fn snapshot(&self) -> DurationSum {
        DurationSum { count: self.count.load(Ordering::Relaxed), nanoseconds: self.nanoseconds.load(Ordering::Relaxed) }
    }
}

/// Durations of the phases of an answered request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimings {
    /// From the request's arrival to the beginning of decoding: reading the body, and waiting until the model is loaded
    /// and memory is free.
    pub read: Duration,
    /// The whole request.
    pub total: Duration,
    /// Time in the queue.
    pub queue: Duration,
    /// Decoding the body into tensors.
    pub decode: Duration,
    /// Computing the model.
    pub compute: Duration,
    /// Encoding tensors into a body.
    pub encode: Duration,
}

/// The statistics of one version.
#[derive(Debug)]
pub struct VersionStatistics {
    /// Answered requests, including cached ones.
    pub success: DurationCounter,
    /// Requests that failed after the model had accepted them.
    pub fail: DurationCounter,
    /// Queueing time of answered requests.
    pub queue: DurationCounter,
    /// Decoding time of computed requests.
    pub compute_input: DurationCounter,
    /// Compute time of computed requests.
    pub compute_infer: DurationCounter,
    /// Encoding time of computed requests.
    pub compute_output: DurationCounter,
    /// Lookups of cached responses.
    pub cache_hit: DurationCounter,
    /// Lookups and insertions of responses that were not cached.
    pub cache_miss: DurationCounter,
    items: AtomicU64,
    executions: AtomicU64,
    last_ms: AtomicU64,
    /// An open-addressing hash table by batch size. A size of 0 is a free slot.
    batches: Box<[BatchSizeCounter]>,
}

#[derive(Debug, Default)]
struct BatchSizeCounter {
    items: AtomicU64,
    compute: DurationCounter,
}

impl Default for VersionStatistics {
    fn default() -> VersionStatistics {
        let total = DurationCounter::default;
        VersionStatistics {
            success: total(),
            fail: total(),
            queue: total(),
            compute_input: total(),
            compute_infer: total(),
            compute_output: total(),
            cache_hit: total(),
            cache_miss: total(),
            items: AtomicU64::new(0),
            executions: AtomicU64::new(0),
            last_ms: AtomicU64::new(0),
            batches: (0..BATCHES_COUNTED_MAX).map(|_| BatchSizeCounter::default()).collect(),
        }
    }
}

impl VersionStatistics {
    /// Counts an answered request of `items` items. `cached` is whether it was served from the cache, or `None` without
    /// a cache.
    pub fn record_success(&self, items: usize, parts: RequestTimings, cached: Option<bool>) {
        self.success.add(parts.total);
        self.queue.add(parts.queue);
        // The remaining time is spent on the cache lookup.
        let lookup = || parts.total.saturating_sub(parts.decode + parts.queue + parts.compute + parts.encode);
        match cached {
            Some(true) => self.cache_hit.add(lookup()),
            Some(false) => self.cache_miss.add(lookup()),
            None => {}
        }
        if cached != Some(true) {
            self.compute_input.add(parts.decode);
            self.compute_infer.add(parts.compute);
            self.compute_output.add(parts.encode);
            self.items.fetch_add(items as u64, Ordering::Relaxed);
        }
        self.update_last_request();
    }

    /// Counts a request that failed.
    pub fn record_failure(&self, total: Duration) {
        self.fail.add(total);
    }

    /// Counts one execution of the model over `items` items from any number of requests.
    pub fn record_execution(&self, items: usize, compute: Duration) {
        self.executions.fetch_add(1, Ordering::Relaxed);
        if let Some(batch) = self.batch_counter(items as u64) {
            batch.compute.add(compute);
        }
    }

    /// Returns the counter of a batch size, or `None` if there are too many different sizes.
    fn batch_counter(&self, items: u64) -> Option<&BatchSizeCounter> {
        let start = usize::try_from(items).unwrap_or(0) % BATCHES_COUNTED_MAX;
        let places = (0..BATCHES_COUNTED_MAX).map(|step| &self.batches[(start + step) % BATCHES_COUNTED_MAX]);
        let mut places = places.take_while(|_| items > 0);
        places.find(|place| {
            let claimed = place.items.compare_exchange(0, items, Ordering::Relaxed, Ordering::Relaxed);
            claimed.map_or_else(|counted_items| counted_items == items, |_| true)
        })
    }

    fn update_last_request(&self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_ms.fetch_max(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the items of requests that were computed.
    pub fn items(&self) -> u64 {
        self.items.load(Ordering::Relaxed)
    }

    /// Returns the number of executions of the model.
    pub fn executions(&self) -> u64 {
        self.executions.load(Ordering::Relaxed)
    }

    /// Returns when a request was last answered, in milliseconds since 1970, or 0 if none was.
    pub fn last_request_ms(&self) -> u64 {
        self.last_ms.load(Ordering::Relaxed)
    }

    /// Returns the executions by batch size, ascending, for the first `limits::BATCHES_COUNTED_MAX` different sizes.
    pub fn executions_by_batch_size(&self) -> Vec<(u64, DurationSum)> {
        let batch = |batch: &BatchSizeCounter| (batch.items.load(Ordering::Relaxed), batch.compute.snapshot());
        let mut batches: Vec<_> = self.batches.iter().map(batch).filter(|(items, _)| *items > 0).collect();
        batches.sort_unstable_by_key(|(items, _)| *items);
        batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_executions_are_counted_separately() {
        let statistics = VersionStatistics::default();
        let ms = Duration::from_millis;
        let parts =
            RequestTimings { read: ms(0), total: ms(10), queue: ms(1), decode: ms(2), compute: ms(3), encode: ms(4) };
        assert_eq!(statistics.last_request_ms(), 0);
        // Two requests that ran in one batch.
        statistics.record_success(1, parts, None);
        statistics.record_success(8, RequestTimings { total: ms(12), ..parts }, Some(false));
        statistics.record_execution(9, ms(3));
        statistics.record_success(
            1,
            RequestTimings { total: ms(3), decode: ms(1), ..RequestTimings::default() },
            Some(true),
        );
        statistics.record_failure(ms(5));
        let sum = |count, milliseconds: u64| DurationSum { count, nanoseconds: milliseconds * 1_000_000 };
        assert_eq!((statistics.items(), statistics.executions()), (9, 1));
        assert_eq!((statistics.success.snapshot(), statistics.fail.snapshot()), (sum(3, 25), sum(1, 5)));
        assert_eq!(statistics.queue.snapshot(), sum(3, 2));
        assert_eq!((statistics.cache_hit.snapshot(), statistics.cache_miss.snapshot()), (sum(1, 2), sum(1, 2)));
        assert_eq!(statistics.compute_infer.snapshot(), sum(2, 6));
        assert_eq!(statistics.executions_by_batch_size(), [(9, sum(1, 3))]);
        assert!(statistics.last_request_ms() > 0);
    }

    #[test]
    fn only_the_first_distinct_batch_sizes_are_counted() {
        let statistics = VersionStatistics::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..=2 * BATCHES_COUNTED_MAX)
                        .for_each(|items| statistics.record_execution(items * 64, Duration::ZERO))
                });
            }
        });
        let batches = statistics.executions_by_batch_size();
        assert_eq!(batches.len(), BATCHES_COUNTED_MAX);
        assert!(batches.is_sorted_by(|(a, _), (b, _)| a < b), "no size is there twice");
        assert_eq!(statistics.executions(), 4 * (2 * BATCHES_COUNTED_MAX as u64 + 1));
    }
}
