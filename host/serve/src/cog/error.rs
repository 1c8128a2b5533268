//! Errors of requests to the predictions interface.

use thiserror::Error;

/// The reason for which a request to the predictions interface is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PredictionError {
    /// The body does not have the expected form.
    #[error("body: {reason}")]
    Body {
        /// The problem.
        reason: String,
    },
    /// The identifier is invalid.
    #[error("id: expected 1 to 128 letters, digits, `-`, `_` and `.`, got {got:?}")]
    Id {
        /// The identifier that was sent.
        got: String,
    },
    /// The prediction does not exist.
    #[error("no prediction {id}: it has expired or never existed")]
    NotFound {
        /// Its identifier.
        id: String,
    },
    /// Another prediction has this identifier.
    #[error("prediction {id} has another input or model")]
    Conflict {
        /// Its identifier.
        id: String,
    },
    /// Too many predictions are running.
    #[error("{running} predictions are running, which is the limit")]
    TooMany {
        /// The number of running predictions.
        running: usize,
    },
    /// The webhook's URL is not allowed.
    #[error("webhook: {reason}")]
    Webhook {
        /// The reason.
        reason: &'static str,
    },
}
