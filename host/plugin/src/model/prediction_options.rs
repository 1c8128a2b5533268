//! The options of one prediction: its time limit, and who is interested in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_device::{CancelToken, DeviceError};

use crate::call_limits::CallClock;
use crate::error::PluginError;
use crate::streaming::reply::PieceSink;

/// Options of one prediction.
#[derive(Clone, Debug)]
pub struct PredictionOptions {
    /// Time limit: the prediction is cancelled when it has passed.
    pub deadline: Duration,
    /// The receiver of output pieces that the plugin sends before the prediction is complete.
    pub sink: Option<Arc<dyn PieceSink>>,
    /// Cancelled when the client no longer waits.
    pub cancel: Option<CancelToken>,
    /// If true, the prediction fails unless an instance is idle, because loading another instance can take long.
    pub requires_idle_instance: bool,
}

impl PredictionOptions {
    /// Returns the options of a prediction with this total time limit.
    pub fn with_deadline(deadline: Duration) -> PredictionOptions {
        PredictionOptions { deadline, sink: None, cancel: None, requires_idle_instance: false }
    }

    /// Returns a token that cancels the host's work for the prediction at `until`.
    pub(super) fn cancel_token(&self, until: Instant) -> CancelToken {
        let left = until.saturating_duration_since(Instant::now());
        CallClock::new(Some(left), None).cancel_token(self.cancel.clone())
    }

    /// Maps a device error to the error of the prediction. A cancelled device call becomes the reason why it was
    /// cancelled.
    pub(super) fn explain_error(&self, error: DeviceError, until: Instant) -> PluginError {
        let during = "predict";
        match error {
            DeviceError::Cancelled if Instant::now() >= until => {
                PluginError::Deadline { during, limit_ms: millis(self.deadline) }
            }
            DeviceError::Cancelled => PluginError::Cancelled { during },
            error => error.into(),
        }
    }
}

/// Returns a duration in whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
