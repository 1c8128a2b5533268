//! Errors of requests to the predictions interface.

use saggar_rest::errors::ErrorCode;
use thiserror::Error;

use crate::error::{ErrorMapping, ProtocolError};

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
    /// The result is in the storage of another server, which this server does not have.
    #[error("the result of prediction {id} is large, and in the storage of server {server}")]
    OtherStorage {
        /// Its identifier.
        id: String,
        /// The server that has computed it.
        server: String,
    },
    /// The webhook's URL is not allowed.
    #[error("webhook: {reason}")]
    Webhook {
        /// The reason.
        reason: &'static str,
    },
}

impl ProtocolError for PredictionError {
    fn mapping(&self) -> ErrorMapping {
        match self {
            PredictionError::Body { .. } => {
                ErrorMapping::bad_request(ErrorCode::BadJson, "for example: {\"input\": {\"x\": [1, 2]}}")
            }
            PredictionError::Id { .. } => ErrorMapping::bad_request(ErrorCode::BadParameter, ""),
            PredictionError::NotFound { .. } => {
                ErrorMapping::not_found(ErrorCode::NotFound, "PUT /predictions/ID makes it")
            }
            PredictionError::Conflict { .. } => ErrorMapping::conflict("choose another identifier"),
            PredictionError::TooMany { .. } => {
                ErrorMapping::too_many_requests(ErrorCode::QueueFull, "try again a little later")
            }
            PredictionError::OtherStorage { .. } => ErrorMapping::not_found(
                ErrorCode::NotFound,
                "ask that server, and start all servers with the same --objects",
            ),
            PredictionError::Webhook { .. } => ErrorMapping::unprocessable(ErrorCode::WebhookRefused, ""),
        }
    }
}
