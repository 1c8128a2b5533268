//! The record of one prediction, from which its outcome and the durations of its phases are counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_metrics::MetricsRegistry;
use saggar_plugin::{FailureReason, PluginError};
use saggar_store::Digest;
use saggar_telemetry::request_trace::BatchTimes;
use saggar_telemetry::{PredictionTimes, RequestTrace};

use crate::live_version::{LiveVersion, VersionLease};
use crate::metrics::prediction_outcome::{PredictionFailure, PredictionOutcome, PredictionPhase};
use crate::metrics::statistics::RequestTimings;

/// Counts one prediction when it is dropped, as cancelled unless another outcome was set. Holds its version until then,
/// so that nothing is counted for a version that has been drained.
#[derive(Debug)]
pub(crate) struct PredictionRecord {
    lease: Arc<VersionLease>,
    began: Instant,
    outcome: PredictionOutcome,
    /// Whether its inputs were accepted and the model was called.
    is_computing: bool,
    timings: RequestTimings,
    items: usize,
    cached: Option<bool>,
    /// The observation of its request, or `None` if the request is not observed.
    trace: Option<RequestTrace>,
    batch: Option<BatchTimes>,
    /// When decoding and encoding ended.
    decoded_at: Option<Instant>,
    encoded_at: Option<Instant>,
}

impl PredictionRecord {
    /// Begins the record of a prediction whose request took `read` until now.
    pub(crate) fn new(lease: Arc<VersionLease>, trace: Option<RequestTrace>, read: Duration) -> PredictionRecord {
        PredictionRecord {
            lease,
            began: Instant::now(),
            outcome: PredictionOutcome::Cancelled,
            is_computing: false,
            timings: RequestTimings { read, ..RequestTimings::default() },
            items: 1,
            cached: None,
            trace,
            batch: None,
            decoded_at: None,
            encoded_at: None,
        }
    }

    /// Returns the durations of the phases that are over. `total` is not set.
    pub(crate) fn timings(&self) -> RequestTimings {
        self.timings
    }

    pub(crate) fn live_version(&self) -> &Arc<LiveVersion> {
        self.lease.live_version()
    }

    pub(crate) fn lease(&self) -> &Arc<VersionLease> {
        &self.lease
    }

    /// Observes the duration of a phase.
    pub(crate) fn observe_phase(&mut self, phase: PredictionPhase, time: Duration) {
        self.live_version().metrics().observe_phase(phase, time);
        match phase {
            PredictionPhase::Decode => (self.timings.decode, self.decoded_at) = (time, Some(Instant::now())),
            PredictionPhase::Queue => self.timings.queue = time,
            PredictionPhase::Compute => self.timings.compute = time,
            PredictionPhase::Encode => (self.timings.encode, self.encoded_at) = (time, Some(Instant::now())),
        }
    }

    /// Records the batch in which it was computed.
    pub(crate) fn set_batch(&mut self, batch: Option<BatchTimes>) {
        self.batch = batch;
    }

    /// Returns the phases for the observation of the request.
    fn times(&self) -> PredictionTimes {
        let began = |ended: Option<Instant>, time: Duration| Some((ended?.checked_sub(time)?, time));
        let version = self.live_version();
        PredictionTimes {
            model: version.model.clone(),
            version: version.version,
            outcome: self.outcome.name(),
            decode: began(self.decoded_at, self.timings.decode),
            queue: self.timings.queue,
            batch: self.batch,
            encode: began(self.encoded_at, self.timings.encode),
        }
    }

    /// Marks the prediction as computing. From now on, a missing answer counts as a failure.
    pub(crate) fn set_computing(&mut self) {
        self.is_computing = true;
    }

    /// Records the number of items in the answer, and whether it came from the cache if there is one.
    pub(crate) fn set_answer(&mut self, items: usize, cached: Option<bool>) {
        (self.items, self.cached) = (items, cached);
    }

    /// Records the outcome.
    pub(crate) fn finish<T, E: PredictionFailure>(&mut self, metrics: &MetricsRegistry, result: &Result<T, E>) {
        self.outcome = result.as_ref().map_or_else(PredictionFailure::outcome, |_| PredictionOutcome::Success);
        if let Some(error) = result.as_ref().err().and_then(PredictionFailure::plugin_error) {
            count_plugin_fault(metrics, &self.live_version().origin.plugin, error);
        }
    }
}

/// Counts a plugin's fault by plugin and kind.
pub(crate) fn count_plugin_fault(metrics: &MetricsRegistry, plugin: &Digest, error: &PluginError) {
    // Long enough a prefix of the digest to distinguish plugins, short enough for a label.
    let plugin = &plugin.hex()[..12];
    let families = &metrics.families;
    let (family, kind) = match error.reason() {
        FailureReason::Trap => (&families.plugin_traps, "trap"),
        FailureReason::StackOverflow => (&families.plugin_traps, "stack_overflow"),
        FailureReason::MemoryLimit => (&families.plugin_limit_hits, "memory"),
        FailureReason::OutOfMemory => (&families.plugin_limit_hits, "gpu_memory"),
        FailureReason::Deadline => (&families.plugin_limit_hits, "deadline"),
        FailureReason::TableLimit => (&families.plugin_limit_hits, "tables"),
        FailureReason::HandleLimit => (&families.plugin_limit_hits, "handles"),
        _ => return,
    };
    family.with_label_values(&[plugin, kind]).inc();
}

impl Drop for PredictionRecord {
    fn drop(&mut self) {
        let total = self.began.elapsed();
        let statistics = self.live_version().statistics();
        if self.outcome == PredictionOutcome::Success {
            statistics.record_success(self.items, RequestTimings { total, ..self.timings }, self.cached);
        } else if self.is_computing {
            statistics.record_failure(total);
        }
        self.live_version().metrics().record_outcome(self.outcome, total);
        if let Some(trace) = &self.trace {
            trace.record_prediction(&self.times());
        }
    }
}
