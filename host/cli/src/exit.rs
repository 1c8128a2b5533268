//! Exit codes, and the error type that carries one.

use std::fmt;

use saggar_jobs::RetryCause;
use saggar_jobs::outcome::RETRIES_EXHAUSTED;
use saggar_plugin::FailureReason;
use saggar_rest::errors::ErrorCode;
use saggar_store::JobState;

/// An unexpected error.
pub(crate) const UNEXPECTED: i32 = 1;
/// A wrong command line, or a missing confirmation.
pub(crate) const USAGE: i32 = 2;
/// A named thing does not exist.
pub(crate) const NOT_FOUND: i32 = 3;
/// The server does not accept the key, or the key does not allow the request.
pub(crate) const FORBIDDEN: i32 = 4;
/// A state, quota or rate limit forbids the request.
pub(crate) const CONFLICT: i32 = 5;
/// No server answers at the address.
pub(crate) const UNREACHABLE: i32 = 6;
/// A file, a parameter or a plugin is invalid.
pub(crate) const INVALID: i32 = 7;
/// No device is usable.
pub(crate) const NO_DEVICE: i32 = 8;
/// A measured result is worse than the one that it was compared with.
pub(crate) const REGRESSION: i32 = 9;
/// The job failed.
pub(crate) const JOB_FAILED: i32 = 20;
/// The job was cancelled.
pub(crate) const JOB_CANCELLED: i32 = 21;
/// The job reached its maximum running time.
pub(crate) const JOB_TIMED_OUT: i32 = 22;
/// The job was interrupted more often than its retries allow.
pub(crate) const JOB_RETRIES_EXHAUSTED: i32 = 23;
/// The job exceeded a memory limit.
pub(crate) const JOB_OUT_OF_MEMORY: i32 = 24;
/// This command's own `--timeout` is over; the job keeps running.
pub(crate) const COMMAND_TIMED_OUT: i32 = 124;
/// Ctrl-C; the job keeps running.
pub(crate) const INTERRUPTED: i32 = 130;
/// SIGTERM.
pub(crate) const TERMINATED: i32 = 143;

/// An error for the user: what is wrong, how to fix it, and the exit code of the process.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit_code: i32,
    /// A machine-readable word: `not_found`.
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl CliError {
    pub(crate) fn new(exit: i32, code: &str, message: impl Into<String>) -> CliError {
        CliError { exit_code: exit, code: code.to_owned(), message: message.into(), hint: None }
    }

    /// Returns the error for an invalid value or file.
    pub(crate) fn invalid(message: impl Into<String>) -> CliError {
        CliError::new(INVALID, "invalid", message)
    }

    /// Returns whether the server reported this error.
    pub(crate) fn is(&self, code: ErrorCode) -> bool {
        self.code == code.as_str()
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> CliError {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

/// Returns the exit code for a finished job.
pub(crate) fn code_for_job(state: &str, reason: &str) -> i32 {
    let was_interrupted = reason == RETRIES_EXHAUSTED
        || matches!(RetryCause::from_code(reason), Some(RetryCause::Preempted | RetryCause::DeviceLost));
    match state.parse() {
        Ok(JobState::Succeeded) => 0,
        Ok(JobState::Cancelled) => JOB_CANCELLED,
        Ok(JobState::TimedOut) => JOB_TIMED_OUT,
        _ if was_interrupted => JOB_RETRIES_EXHAUSTED,
        _ if FailureReason::from_name(reason).is_some_and(FailureReason::is_memory_limit) => JOB_OUT_OF_MEMORY,
        _ => JOB_FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_of_a_job_follows_from_its_state_and_reason() {
        for (state, reason, code) in [
            ("SUCCEEDED", "", 0),
            ("CANCELLED", "OUT_OF_MEMORY", JOB_CANCELLED),
            ("TIMED_OUT", "MAX_RUNTIME", JOB_TIMED_OUT),
            ("FAILED", "RETRIES_EXHAUSTED", JOB_RETRIES_EXHAUSTED),
            ("FAILED", "PREEMPTED", JOB_RETRIES_EXHAUSTED),
            ("FAILED", "DEVICE_LOST", JOB_RETRIES_EXHAUSTED),
            ("FAILED", "WORKER_LOST", JOB_FAILED),
            ("FAILED", "OUT_OF_MEMORY", JOB_OUT_OF_MEMORY),
            ("FAILED", "MEMORY_LIMIT", JOB_OUT_OF_MEMORY),
            ("FAILED", "TABLE_LIMIT", JOB_OUT_OF_MEMORY),
            ("FAILED", "HANDLE_LIMIT", JOB_OUT_OF_MEMORY),
            ("FAILED", "A_REASON_OF_ANOTHER_VERSION", JOB_FAILED),
        ] {
            assert_eq!(code_for_job(state, reason), code, "{state} {reason}");
        }
    }
}
