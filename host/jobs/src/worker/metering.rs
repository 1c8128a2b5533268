//! Usage counters of an attempt: items drawn, and time spent on other work than computing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::protocol::WorkerUsage;

/// The counters. One thread counts, another reports.
#[derive(Debug, Default)]
pub(super) struct UsageCounters {
    samples: AtomicU64,
    data: AtomicU64,
    all_reduce: AtomicU64,
    checkpoints: AtomicU64,
}

impl UsageCounters {
    /// Counts dataset items that were drawn, and the time to transfer them to the device.
    pub(super) fn add_samples(&self, items: u64, time: Duration) {
        self.samples.fetch_add(items, Ordering::Relaxed);
        add_time(&self.data, time);
    }

    /// Counts the time of an all-reduce over worker processes.
    pub(super) fn add_all_reduce(&self, time: Duration) {
        add_time(&self.all_reduce, time);
    }

    /// Counts the time of a checkpoint, saved or failed.
    pub(super) fn add_checkpoint(&self, time: Duration) {
        add_time(&self.checkpoints, time);
    }

    /// Returns the number of dataset items drawn.
    pub(super) fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Returns the usage report with these counters filled in.
    pub(super) fn apply_to(&self, usage: WorkerUsage) -> WorkerUsage {
        let seconds = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed)).as_secs_f64();
        WorkerUsage {
            samples: self.samples(),
            data_seconds: seconds(&self.data),
            all_reduce_seconds: seconds(&self.all_reduce),
            checkpoint_seconds: seconds(&self.checkpoints),
            ..usage
        }
    }
}

fn add_time(counter: &AtomicU64, time: Duration) {
    counter.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}
