//! Metrics of predictions: outcomes and durations of phases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_metrics::MetricsRegistry;
use saggar_plugin::PluginError;

use crate::error::ApiError;
use crate::models::live_version::{LiveVersion, VersionLease};
use crate::models::statistics::RequestTimings;

/// A phase of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PredictionPhase {
    Decode,
    Queue,
    Compute,
    Encode,
}

/// The names of the phases, in their order.
pub(crate) const PHASES: [&str; 4] = ["decode", "queue", "compute", "encode"];

/// The outcome of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PredictionOutcome {
    Success,
    Rejected,
    Cancelled,
    Timeout,
    PluginError,
    HostError,
}

impl PredictionOutcome {
    pub(crate) const ALL: [PredictionOutcome; 6] = [
        PredictionOutcome::Success,
        PredictionOutcome::Rejected,
        PredictionOutcome::Cancelled,
        PredictionOutcome::Timeout,
        PredictionOutcome::PluginError,
        PredictionOutcome::HostError,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            PredictionOutcome::Success => "success",
            PredictionOutcome::Rejected => "rejected",
            PredictionOutcome::Cancelled => "cancelled",
            PredictionOutcome::Timeout => "timeout",
            PredictionOutcome::PluginError => "plugin_error",
            PredictionOutcome::HostError => "host_error",
        }
    }

    fn from_error(error: &ApiError) -> PredictionOutcome {
        match error {
            ApiError::DeadlineQueued { .. }
            | ApiError::Plugin(PluginError::Deadline { .. } | PluginError::Busy { .. }) => PredictionOutcome::Timeout,
            ApiError::Plugin(PluginError::Cancelled { .. }) => PredictionOutcome::Cancelled,
            ApiError::Plugin(PluginError::Device(_) | PluginError::Engine { .. }) | ApiError::Internal { .. } => {
                PredictionOutcome::HostError
            }
            ApiError::Plugin(PluginError::BadInput { .. } | PluginError::Guest { code: "invalid-argument", .. }) => {
                PredictionOutcome::Rejected
            }
            ApiError::Plugin(_) | ApiError::Encode(_) => PredictionOutcome::PluginError,
            _ => PredictionOutcome::Rejected,
        }
    }
}

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
}

impl PredictionRecord {
    pub(crate) fn new(lease: Arc<VersionLease>) -> PredictionRecord {
        PredictionRecord {
            lease,
            began: Instant::now(),
            outcome: PredictionOutcome::Cancelled,
            is_computing: false,
            timings: RequestTimings::default(),
            items: 1,
            cached: None,
        }
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
            PredictionPhase::Decode => self.timings.decode = time,
            PredictionPhase::Queue => self.timings.queue = time,
            PredictionPhase::Compute => self.timings.compute = time,
            PredictionPhase::Encode => self.timings.encode = time,
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
    pub(crate) fn finish<T>(&mut self, metrics: &MetricsRegistry, result: &Result<T, ApiError>) {
        self.outcome = result.as_ref().map_or_else(PredictionOutcome::from_error, |_| PredictionOutcome::Success);
        if let Err(ApiError::Plugin(error)) = result {
            // Long enough a prefix of the digest to distinguish plugins, short enough for a label.
            count_plugin_fault(metrics, &self.live_version().origin.plugin.hex()[..12], error);
        }
    }
}

/// Counts a plugin's fault by plugin and kind.
fn count_plugin_fault(metrics: &MetricsRegistry, plugin: &str, error: &PluginError) {
    let families = &metrics.families;
    let (family, kind) = match error.reason() {
        "TRAP" => (&families.plugin_traps, "trap"),
        "STACK_OVERFLOW" => (&families.plugin_traps, "stack_overflow"),
        "MEMORY_LIMIT" => (&families.plugin_limit_hits, "memory"),
        "OUT_OF_MEMORY" => (&families.plugin_limit_hits, "gpu_memory"),
        "DEADLINE" => (&families.plugin_limit_hits, "deadline"),
        "TABLE_LIMIT" => (&families.plugin_limit_hits, "tables"),
        "HANDLE_LIMIT" => (&families.plugin_limit_hits, "handles"),
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
    }
}
