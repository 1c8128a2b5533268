//! The error of an attempt that a new worker can repeat with success.

use std::error::Error;

use saggar_plugin::{FailureReason, PluginError};
use saggar_store::error::is_store_unavailable;

use super::AttemptFailure;

/// Returns an error after which the attempt is repeated.
pub(super) fn worker_lost_error(message: String) -> PluginError {
    PluginError::Ranks { reason: FailureReason::WorkerLost, message }
}

/// Returns the error of an attempt that cannot store or restore something, with a message about it. If a store on another
/// machine does not answer, another attempt can succeed.
pub(super) fn storage_error(error: &(dyn Error + 'static), message: String) -> PluginError {
    if is_store_unavailable(error) { worker_lost_error(message) } else { PluginError::job(message) }
}

/// Returns the failure of an attempt that cannot read or make its data. Every attempt has it, unless a store on another
/// machine does not answer.
pub(super) fn data_failure(reason: &'static str, error: &(dyn Error + 'static)) -> AttemptFailure {
    match is_store_unavailable(error) {
        true => AttemptFailure::Plugin(worker_lost_error(error.to_string())),
        false => AttemptFailure::permanent(reason, error),
    }
}
