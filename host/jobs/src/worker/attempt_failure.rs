//! Why an attempt failed, and what that means for the exit code of its process.

use saggar_plugin::{FailureReason, PluginError};
use thiserror::Error;

use crate::protocol::{EXIT_BROKEN, EXIT_FAILED, EXIT_OUT_OF_MEMORY, EXIT_TRY_AGAIN};
use crate::spec::{RetryCause, WORKER_LOST};

/// The failure of an attempt.
#[derive(Debug, Error)]
pub(super) enum AttemptFailure {
    /// The plugin failed.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// The job was to pause, but its state could not be saved.
    #[error("the state could not be saved for the pause; the log says why")]
    PauseNotSaved,
    /// Every attempt would fail in this way.
    #[error("{message}")]
    Permanent { reason: &'static str, message: String },
}

impl AttemptFailure {
    /// Returns a failure that every attempt would have.
    pub(super) fn permanent(reason: &'static str, error: impl std::fmt::Display) -> AttemptFailure {
        AttemptFailure::Permanent { reason, message: error.to_string() }
    }

    /// Returns the reason code, as the supervisor records it.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            AttemptFailure::Plugin(error) => error.reason().as_str(),
            AttemptFailure::PauseNotSaved => WORKER_LOST,
            AttemptFailure::Permanent { reason, .. } => reason,
        }
    }

    pub(super) fn is_device_loss(&self) -> bool {
        matches!(self, AttemptFailure::Plugin(error) if error.reason() == FailureReason::DeviceLost)
    }

    /// Returns the exit code of the worker.
    pub(super) fn exit_code(&self) -> i32 {
        match self {
            AttemptFailure::PauseNotSaved => EXIT_TRY_AGAIN,
            AttemptFailure::Permanent { .. } => EXIT_BROKEN,
            AttemptFailure::Plugin(error) if error.reason().is_memory_limit() => EXIT_OUT_OF_MEMORY,
            AttemptFailure::Plugin(error) => match RetryCause::from(error.reason()) {
                RetryCause::Preempted | RetryCause::DeviceLost | RetryCause::WorkerLost | RetryCause::HostRestart => {
                    EXIT_TRY_AGAIN
                }
                RetryCause::NonFinite | RetryCause::Error => EXIT_FAILED,
            },
        }
    }
}
