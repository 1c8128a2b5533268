//! Draws predictions and queues samples, without waiting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use saggar_metrics::{IntCounter, MetricsRegistry};
use saggar_serving::{PredictionSample, PredictionSampler, SampleTicket};

use super::RecordingPolicy;
use crate::limits::{SAMPLES_BYTES_MAX, SAMPLES_WAITING_MAX};

/// The samples that wait for the thread that collects them.
#[derive(Debug)]
pub(super) struct SampleQueue {
    models: BTreeMap<String, ModelDraws>,
    queue: Mutex<QueuedSamples>,
    wake: Condvar,
    bytes: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct QueuedSamples {
    samples: Vec<PredictionSample>,
    is_stopping: bool,
}

/// The draws of one model.
#[derive(Debug)]
struct ModelDraws {
    share: f64,
    /// Predictions so far.
    count: AtomicU64,
    dropped_busy: IntCounter,
}

impl SampleQueue {
    pub(super) fn new(policies: &BTreeMap<String, RecordingPolicy>, metrics: &MetricsRegistry) -> SampleQueue {
        let draws = |(model, policy): (&String, &RecordingPolicy)| {
            let dropped_busy = metrics.families.recorded_rows_dropped.with_label_values(&[model, "busy"]);
            (model.clone(), ModelDraws { share: policy.share, count: AtomicU64::new(0), dropped_busy })
        };
        SampleQueue {
            models: policies.iter().map(draws).collect(),
            queue: Mutex::default(),
            wake: Condvar::new(),
            bytes: Arc::default(),
        }
    }

    /// Waits for samples, at most for `time`. Returns them, and whether the server stops.
    pub(super) fn wait(&self, time: std::time::Duration) -> (Vec<PredictionSample>, bool) {
        let mut queue = self.queue.lock();
        if queue.samples.is_empty() && !queue.is_stopping {
            self.wake.wait_for(&mut queue, time);
        }
        (std::mem::take(&mut queue.samples), queue.is_stopping)
    }

    /// Ends waits: the server stops.
    pub(super) fn stop(&self) {
        self.queue.lock().is_stopping = true;
        self.wake.notify_all();
    }
}

impl PredictionSampler for SampleQueue {
    fn draw(&self, model: &str, bytes: usize) -> Option<SampleTicket> {
        let draws = self.models.get(model)?;
        // Every share of a percent is met exactly over a hundred predictions, without random numbers.
        let count = draws.count.fetch_add(1, Ordering::Relaxed);
        if !is_drawn(count, draws.share) {
            return None;
        }
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let share = SampleBytes { bytes, all: Arc::clone(&self.bytes) };
        if before.saturating_add(bytes) > SAMPLES_BYTES_MAX {
            draws.dropped_busy.inc();
            return None;
        }
        Some(SampleTicket::new(share))
    }

    fn keep(&self, sample: PredictionSample) {
        let mut queue = self.queue.lock();
        if queue.samples.len() >= SAMPLES_WAITING_MAX {
            drop(queue);
            if let Some(draws) = self.models.get(&sample.model) {
                draws.dropped_busy.inc_by(sample.items as u64);
            }
            return;
        }
        queue.samples.push(sample);
        drop(queue);
        self.wake.notify_one();
    }
}

/// Returns whether the prediction with this number is drawn: whenever the share of all so far reaches another whole
/// number.
fn is_drawn(count: u64, share: f64) -> bool {
    let reached = |count: u64| (count as f64 * share).floor();
    reached(count + 1) > reached(count)
}

/// The bytes of a sample, which are free when it is dropped.
#[derive(Debug)]
struct SampleBytes {
    bytes: usize,
    all: Arc<AtomicUsize>,
}

impl Drop for SampleBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn queue(share: f64) -> (SampleQueue, MetricsRegistry) {
        let policy = RecordingPolicy { share, every: Duration::from_secs(1), rows_max: 10, bytes_max: 1000 };
        let metrics = MetricsRegistry::new();
        (SampleQueue::new(&BTreeMap::from([("m".to_owned(), policy)]), &metrics), metrics)
    }

    #[test]
    fn the_share_is_met_and_other_models_are_not_drawn() {
        for (share, expected) in [(1.0, 1000), (0.01, 10), (0.001, 1), (0.5, 500)] {
            let (queue, _metrics) = queue(share);
            assert_eq!((0..1000).filter(|_| queue.draw("m", 1).is_some()).count(), expected, "{share}");
            assert!(queue.draw("other", 1).is_none());
        }
    }

    #[test]
    fn samples_beyond_the_memory_are_dropped_and_counted() {
        let (queue, metrics) = queue(1.0);
        let held = queue.draw("m", SAMPLES_BYTES_MAX);
        assert!(held.is_some() && queue.draw("m", 1).is_none());
        let dropped = metrics.families.recorded_rows_dropped.with_label_values(&["m", "busy"]);
        assert_eq!(dropped.get(), 1);
        drop(held);
        assert!(queue.draw("m", 1).is_some());
    }
}
