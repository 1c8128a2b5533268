//! How predictions end, and how long their parts take, in metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_metrics::Metrics;
use saggar_plugin::PluginError;

use crate::error::ApiError;
use crate::models::statistics::Parts;
use crate::models::version::{Lease, Serving};

/// A part of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Decode,
    Queue,
    Compute,
    Encode,
}

/// The names of the parts, in their order.
pub(crate) const PHASES: [&str; 4] = ["decode", "queue", "compute", "encode"];

/// How a prediction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Rejected,
    Cancelled,
    Timeout,
    PluginError,
    HostError,
}

impl Outcome {
    pub(crate) const ALL: [Outcome; 6] = [
        Outcome::Success,
        Outcome::Rejected,
        Outcome::Cancelled,
        Outcome::Timeout,
        Outcome::PluginError,
        Outcome::HostError,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Rejected => "rejected",
            Outcome::Cancelled => "cancelled",
            Outcome::Timeout => "timeout",
            Outcome::PluginError => "plugin_error",
            Outcome::HostError => "host_error",
        }
    }

    fn of(error: &ApiError) -> Outcome {
        match error {
            ApiError::DeadlineQueued { .. }
            | ApiError::Plugin(PluginError::Deadline { .. } | PluginError::Busy { .. }) => Outcome::Timeout,
            ApiError::Plugin(PluginError::Cancelled { .. }) => Outcome::Cancelled,
            ApiError::Plugin(PluginError::Device(_) | PluginError::Engine { .. }) | ApiError::Internal { .. } => {
                Outcome::HostError
            }
            ApiError::Plugin(PluginError::BadInput { .. } | PluginError::Guest { code: "invalid-argument", .. }) => {
                Outcome::Rejected
            }
            ApiError::Plugin(_) | ApiError::Encode(_) => Outcome::PluginError,
            _ => Outcome::Rejected,
        }
    }
}

/// Counts one prediction when it is dropped: as cancelled, unless it was told another end. Holds its version until then, so
/// that nothing counts for one that is drained.
#[derive(Debug)]
pub(crate) struct Record {
    lease: Arc<Lease>,
    began: Instant,
    outcome: Outcome,
    /// Whether its inputs were fit for the model.
    taken: bool,
    parts: Parts,
    items: usize,
    cached: Option<bool>,
}

impl Record {
    pub(crate) fn begin(lease: Arc<Lease>) -> Record {
        Record {
            lease,
            began: Instant::now(),
            outcome: Outcome::Cancelled,
            taken: false,
            parts: Parts::default(),
            items: 1,
            cached: None,
        }
    }

    pub(crate) fn serving(&self) -> &Arc<Serving> {
        self.lease.serving()
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Observes how long a part took.
    pub(crate) fn phase(&mut self, phase: Phase, time: Duration) {
        self.serving().series().phase(phase, time);
        match phase {
            Phase::Decode => self.parts.decode = time,
            Phase::Queue => self.parts.queue = time,
            Phase::Compute => self.parts.compute = time,
            Phase::Encode => self.parts.encode = time,
        }
    }

    /// Says that the model is asked: from now on it is a failure of its own where there is no answer.
    pub(crate) fn taken(&mut self) {
        self.taken = true;
    }

    /// Says what was answered: how many items, and whether from the cache, where there is one.
    pub(crate) fn answered(&mut self, items: usize, cached: Option<bool>) {
        (self.items, self.cached) = (items, cached);
    }

    /// Says how it ended.
    pub(crate) fn end<T>(&mut self, metrics: &Metrics, result: &Result<T, ApiError>) {
        self.outcome = result.as_ref().map_or_else(Outcome::of, |_| Outcome::Success);
        if let Err(ApiError::Plugin(error)) = result {
            // Enough of the digest to tell plugins apart, short enough for a label.
            fault(metrics, &self.serving().origin.plugin.hex()[..12], error);
        }
    }
}

/// Counts a plugin's fault under its plugin.
fn fault(metrics: &Metrics, plugin: &str, error: &PluginError) {
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

impl Drop for Record {
    fn drop(&mut self) {
        let total = self.began.elapsed();
        let statistics = self.serving().statistics();
        if self.outcome == Outcome::Success {
            statistics.answered(self.items, Parts { total, ..self.parts }, self.cached);
        } else if self.taken {
            statistics.failed(total);
        }
        self.serving().series().ended(self.outcome, total);
    }
}
