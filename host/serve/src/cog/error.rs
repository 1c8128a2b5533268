//! Why a request about predictions is refused.

use thiserror::Error;

/// Why a request about predictions is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PredictionError {
    /// A body of another form.
    #[error("body: {reason}")]
    Body {
        /// What is wrong.
        reason: String,
    },
    /// An identifier that cannot be one.
    #[error("id: expected 1 to 128 letters, digits, `-`, `_` and `.`, got {got:?}")]
    Id {
        /// What was sent.
        got: String,
    },
    /// No such prediction.
    #[error("no prediction {id}; it is over for some time, or never was")]
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
    /// More predictions than are kept running.
    #[error("{running} predictions are running, the most there may be")]
    TooMany {
        /// How many.
        running: usize,
    },
    /// An address that events are not sent to.
    #[error("webhook: {reason}")]
    Webhook {
        /// Why.
        reason: &'static str,
    },
}
