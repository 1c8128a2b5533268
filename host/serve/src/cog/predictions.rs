//! The predictions of this server, and the webhooks that they call.

use std::sync::Arc;

use saggar_fetch::UrlPrefix;
use saggar_jobs::JobService;
use saggar_store::ObjectStorage;

use super::prediction::CogPrediction;
use super::prediction_status::CogPredictionOutcome;
use super::shared_predictions::SharedPredictions;
use super::store::CogPredictionStore;
use super::webhook::WebhookClient;

/// All predictions that are running or finished recently.
#[derive(Debug)]
pub(crate) struct CogPredictions {
    pub(super) store: CogPredictionStore,
    pub(super) webhooks: WebhookClient,
    /// Predictions that clients can query on other servers too; `None` if this is the only server.
    pub(super) shared: Option<Arc<SharedPredictions>>,
}

impl CogPredictions {
    /// Creates an empty store, which other servers of the same records see. Events can be sent to URLs that match one of the
    /// prefixes in `webhooks`.
    pub(crate) fn new(webhooks: Vec<UrlPrefix>, jobs: &JobService, objects: &ObjectStorage) -> CogPredictions {
        let shared = SharedPredictions::of_server(jobs, objects).map(Arc::new);
        CogPredictions { store: CogPredictionStore::default(), webhooks: WebhookClient::new(webhooks), shared }
    }

    /// Cancels a prediction unless it has finished, and stops its computation.
    pub(super) fn cancel_prediction(prediction: &CogPrediction, now_ms: u64) {
        if prediction.finish(CogPredictionOutcome::Canceled, now_ms) {
            tracing::debug!(prediction = prediction.id, "canceled");
        }
    }
}
