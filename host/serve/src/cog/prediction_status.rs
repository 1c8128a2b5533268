//! How a prediction stands, and how it ends.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::shared_json::SharedJson;

/// The status of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CogPredictionStatus {
    Starting,
    Processing,
    Succeeded,
    Failed,
    Canceled,
}

impl CogPredictionStatus {
    pub(super) fn name(self) -> &'static str {
        match self {
            CogPredictionStatus::Starting => "starting",
            CogPredictionStatus::Processing => "processing",
            CogPredictionStatus::Succeeded => "succeeded",
            CogPredictionStatus::Failed => "failed",
            CogPredictionStatus::Canceled => "canceled",
        }
    }

    pub(super) fn is_terminal(self) -> bool {
        matches!(self, CogPredictionStatus::Succeeded | CogPredictionStatus::Failed | CogPredictionStatus::Canceled)
    }
}

/// The outcome of a prediction.
#[derive(Debug)]
pub(super) enum CogPredictionOutcome {
    /// The outputs, and the compute time.
    Succeeded(SharedJson, Duration),
    /// The error message.
    Failed(String),
    Canceled,
}
