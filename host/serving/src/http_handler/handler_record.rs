//! The record of one handler's request, from which its outcome and duration are counted.

use std::sync::Arc;
use std::time::Instant;

use saggar_metrics::MetricsRegistry;

use crate::error::ServingError;
use crate::live_version::{LiveVersion, VersionLease};
use crate::metrics::prediction_outcome::{PredictionFailure, PredictionOutcome};
use crate::metrics::version_metrics::GaugeGuard;
use crate::prediction::prediction_record::count_plugin_fault;

/// Counts one request when it is dropped, as cancelled unless another outcome was set. Holds its version until then.
#[derive(Debug)]
pub(super) struct HandlerRecord {
    lease: Arc<VersionLease>,
    metrics: Arc<MetricsRegistry>,
    began: Instant,
    outcome: PredictionOutcome,
    _in_flight: Option<GaugeGuard>,
}

impl HandlerRecord {
    pub(super) fn new(lease: Arc<VersionLease>, metrics: Arc<MetricsRegistry>) -> HandlerRecord {
        let in_flight = lease.live_version().metrics().track_handler();
        HandlerRecord {
            lease,
            metrics,
            began: Instant::now(),
            outcome: PredictionOutcome::Cancelled,
            _in_flight: in_flight,
        }
    }

    pub(super) fn live_version(&self) -> &Arc<LiveVersion> {
        self.lease.live_version()
    }

    pub(super) fn lease(&self) -> &Arc<VersionLease> {
        &self.lease
    }

    /// Records the outcome: the error, or `None` for success.
    pub(super) fn finish(&mut self, error: Option<&ServingError>) {
        self.outcome = error.map_or(PredictionOutcome::Success, PredictionFailure::outcome);
        if let Some(error) = error.and_then(PredictionFailure::plugin_error) {
            count_plugin_fault(&self.metrics, &self.live_version().origin.plugin, error);
        }
    }
}

impl Drop for HandlerRecord {
    fn drop(&mut self) {
        self.live_version().metrics().record_handler(self.outcome, self.began.elapsed());
    }
}
