//! The predictions of this server, and the webhooks that they call.

use saggar_fetch::UrlPrefix;

use super::prediction::{CogPrediction, CogPredictionOutcome};
use super::store::CogPredictionStore;
use super::webhook::WebhookClient;

/// All predictions that are running or finished recently.
#[derive(Debug)]
pub(crate) struct CogPredictions {
    pub(super) store: CogPredictionStore,
    pub(super) webhooks: WebhookClient,
}

impl CogPredictions {
    /// Creates an empty store. Events can be sent to URLs that match one of the prefixes in `webhooks`.
    pub(crate) fn new(webhooks: Vec<UrlPrefix>) -> CogPredictions {
        CogPredictions { store: CogPredictionStore::default(), webhooks: WebhookClient::new(webhooks) }
    }

    /// Cancels a prediction unless it has finished, and stops its computation.
    pub(super) fn cancel_prediction(prediction: &CogPrediction, now_ms: u64) {
        if prediction.finish(CogPredictionOutcome::Canceled, now_ms) {
            tracing::debug!(prediction = prediction.id, "canceled");
        }
    }
}
