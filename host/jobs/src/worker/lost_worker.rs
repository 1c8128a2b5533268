//! The error of an attempt that a new worker can repeat with success.

use saggar_plugin::{FailureReason, PluginError};
use saggar_store::{CheckpointError, StoreError};

/// Returns an error after which the attempt is repeated.
pub(super) fn worker_lost_error(message: String) -> PluginError {
    PluginError::Ranks { reason: FailureReason::WorkerLost, message }
}

/// Returns the error of an attempt that cannot read its checkpoints. If a store on another machine does not answer, another
/// attempt can succeed.
pub(super) fn restore_error(error: &CheckpointError) -> PluginError {
    match error {
        CheckpointError::Store(StoreError::Remote { .. }) => worker_lost_error(error.to_string()),
        error => PluginError::job(error.to_string()),
    }
}
