//! Predictions, independent of the protocol: checking the model before the input is read, and leasing a version.

use std::sync::Arc;

use saggar_clock::Clock;
use saggar_metrics::MetricsRegistry;

use super::deadline::PredictionDeadline;
use super::prediction_sampler::PredictionSampler;
use crate::error::ServingError;
use crate::live_version::VersionLease;
use crate::metrics::rejection::RejectionReason;
use crate::model_reference::ModelReference;
use crate::router::ModelRouter;

/// Answers predictions with the versions of a router. Clones share it.
#[derive(Clone, Debug)]
pub struct PredictionService {
    router: Arc<ModelRouter>,
    metrics: Arc<MetricsRegistry>,
    clock: Arc<dyn Clock>,
    sampler: Option<Arc<dyn PredictionSampler>>,
}

impl PredictionService {
    /// Creates a service. `clock` gives the times at which versions were last used.
    pub fn new(router: Arc<ModelRouter>, metrics: Arc<MetricsRegistry>, clock: Arc<dyn Clock>) -> PredictionService {
        PredictionService { router, metrics, clock, sampler: None }
    }

    /// Passes samples of predictions to `sampler`, if there is one.
    #[must_use]
    pub fn with_sampler(self, sampler: Option<Arc<dyn PredictionSampler>>) -> PredictionService {
        PredictionService { sampler, ..self }
    }

    pub(super) fn sampler(&self) -> Option<&Arc<dyn PredictionSampler>> {
        self.sampler.as_ref()
    }

    /// Checks that the model and version exist, awake or not. A protocol calls this before it reads the input.
    ///
    /// # Errors
    /// Returns the errors of [`ModelRouter::check`].
    pub fn check(&self, reference: Option<&ModelReference>) -> Result<(), ServingError> {
        self.router.check(reference).inspect_err(|error| self.count_rejection(error))
    }

    /// Leases the version that `reference` refers to, or the default model if `None`. A sleeping model is woken, and
    /// the request waits for it. Call it once the body is complete, because a slow client must not keep a version from
    /// draining.
    ///
    /// # Errors
    /// Returns an error if the model or version does not exist or is not ready or its queue is full.
    pub async fn lease(
        &self,
        reference: Option<&ModelReference>,
        deadline: PredictionDeadline,
    ) -> Result<VersionLease, ServingError> {
        self.router.lease(reference, deadline.until()).await.inspect_err(|error| self.count_rejection(error))
    }

    pub(super) fn router(&self) -> &ModelRouter {
        &self.router
    }

    pub(super) fn metrics(&self) -> &MetricsRegistry {
        &self.metrics
    }

    pub(crate) fn shared_metrics(&self) -> &Arc<MetricsRegistry> {
        &self.metrics
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Counts a request that was refused before it reached its model.
    pub(crate) fn count_rejection(&self, error: &ServingError) {
        if let Some(reason) = RejectionReason::from_error(error) {
            reason.count(&self.metrics);
        }
    }
}
