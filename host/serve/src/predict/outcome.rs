//! How predictions end, and how long their parts take, in metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_metrics::Metrics;
use saggar_plugin::PluginError;

use crate::error::ApiError;
use crate::models::version::Serving;

/// The parts of a prediction.
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

/// Counts one prediction when it is dropped: as cancelled, unless it was told another end.
#[derive(Debug)]
pub(crate) struct Record {
    metrics: Arc<Metrics>,
    model: String,
    version: String,
    began: Instant,
    plugin: String,
    outcome: Outcome,
}

impl Record {
    pub(crate) fn begin(metrics: Arc<Metrics>, serving: &Serving) -> Record {
        let (model, version) = (serving.model.clone(), serving.version.to_string());
        // Enough of the digest to tell plugins apart, short enough for a label.
        let plugin = serving.origin.plugin.hex()[..12].to_owned();
        Record { metrics, model, version, began: Instant::now(), plugin, outcome: Outcome::Cancelled }
    }

    /// Observes how long a part took.
    pub(crate) fn phase(&self, phase: &'static str, time: Duration) {
        let labels = [self.model.as_str(), &self.version, phase];
        self.metrics.families.predict_phase.with_label_values(&labels).observe(time.as_secs_f64());
    }

    /// Says how it ended.
    pub(crate) fn end<T>(&mut self, result: &Result<T, ApiError>) {
        self.outcome = result.as_ref().map_or_else(Outcome::of, |_| Outcome::Success);
        if let Err(ApiError::Plugin(error)) = result {
            self.fault(error);
        }
    }

    /// Counts a plugin's fault under its plugin.
    fn fault(&self, error: &PluginError) {
        let families = &self.metrics.families;
        let (family, kind) = match error.reason() {
            "TRAP" => (&families.plugin_traps, "trap"),
            "STACK_OVERFLOW" => (&families.plugin_traps, "stack_overflow"),
            "MEMORY_LIMIT" => (&families.plugin_limit_hits, "memory"),
            "OUT_OF_MEMORY" => (&families.plugin_limit_hits, "gpu_memory"),
            "DEADLINE" => (&families.plugin_limit_hits, "deadline"),
            "HANDLE_LIMIT" => (&families.plugin_limit_hits, "handles"),
            _ => return,
        };
        family.with_label_values(&[self.plugin.as_str(), kind]).inc();
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let families = &self.metrics.families;
        let labels = [self.model.as_str(), &self.version];
        families.predict_requests.with_label_values(&[labels[0], labels[1], self.outcome.name()]).inc();
        families.predict_duration.with_label_values(&labels).observe(self.began.elapsed().as_secs_f64());
    }
}
