//! What a model answered since the process began, over all its versions. The history takes its samples from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::latency_histogram::{LatencyCounts, LatencyHistogram};

/// Counters of one model, updated from any thread without a lock.
#[derive(Debug, Default)]
pub struct ModelTraffic {
    latencies: LatencyHistogram,
    errors: AtomicU64,
    items: AtomicU64,
    executions: AtomicU64,
}

/// The values of [`ModelTraffic`] at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// The durations of all requests, whatever their outcome.
    pub latencies: LatencyCounts,
    /// Requests that the model or the server failed to answer.
    pub errors: u64,
    /// Items of all batches.
    pub items: u64,
    /// Batches.
    pub executions: u64,
}

impl ModelTraffic {
    /// Counts a request that ended after this time. `is_error` is whether the model or the server failed, as opposed to the
    /// client.
    pub fn record_request(&self, time: Duration, is_error: bool) {
        self.latencies.observe(time);
        self.errors.fetch_add(u64::from(is_error), Ordering::Relaxed);
    }

    /// Counts a batch of `items` items.
    pub fn record_execution(&self, items: usize) {
        self.items.fetch_add(items as u64, Ordering::Relaxed);
        self.executions.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the values now.
    pub fn counts(&self) -> TrafficCounts {
        TrafficCounts {
            latencies: self.latencies.counts(),
            errors: self.errors.load(Ordering::Relaxed),
            items: self.items.load(Ordering::Relaxed),
            executions: self.executions.load(Ordering::Relaxed),
        }
    }
}

/// The traffic of every model that was served.
#[derive(Debug, Default)]
pub struct ModelTrafficTable(Mutex<BTreeMap<String, Arc<ModelTraffic>>>);

impl ModelTrafficTable {
    /// Returns the counters of a model.
    pub fn of_model(&self, model: &str) -> Arc<ModelTraffic> {
        Arc::clone(self.0.lock().entry(model.to_owned()).or_default())
    }

    /// Removes the counters of a model that was removed.
    pub fn remove_model(&self, model: &str) {
        self.0.lock().remove(model);
    }

    /// Returns the counts of every model.
    pub fn counts(&self) -> BTreeMap<String, TrafficCounts> {
        self.0.lock().iter().map(|(model, traffic)| (model.clone(), traffic.counts())).collect()
    }
}
