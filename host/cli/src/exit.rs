//! Exit codes, and the error that carries one.

use std::fmt;

/// Something unexpected.
pub(crate) const UNEXPECTED: i32 = 1;
/// The command is not one, or must be agreed to.
pub(crate) const USAGE: i32 = 2;
/// A named thing is not there.
pub(crate) const NOT_FOUND: i32 = 3;
/// The server does not know or does not allow the caller.
pub(crate) const FORBIDDEN: i32 = 4;
/// The request meets a state, quota or rate that forbids it.
pub(crate) const CONFLICT: i32 = 5;
/// Nobody answers at the address.
pub(crate) const UNREACHABLE: i32 = 6;
/// A file, a parameter or a plugin is not as it must be.
pub(crate) const INVALID: i32 = 7;
/// There is no usable device.
pub(crate) const NO_DEVICE: i32 = 8;
/// The job failed.
pub(crate) const JOB_FAILED: i32 = 20;
/// The job was cancelled.
pub(crate) const JOB_CANCELLED: i32 = 21;
/// The job's time was used up.
pub(crate) const JOB_TIMED_OUT: i32 = 22;
/// The job was interrupted more often than it may be tried again.
pub(crate) const JOB_RETRIES_EXHAUSTED: i32 = 23;
/// The job passed a limit on memory.
pub(crate) const JOB_OUT_OF_MEMORY: i32 = 24;
/// This command's own `--timeout` is over; what was started goes on.
pub(crate) const COMMAND_TIMED_OUT: i32 = 124;
/// Ctrl-C; what was started goes on.
pub(crate) const INTERRUPTED: i32 = 130;
/// SIGTERM.
pub(crate) const TERMINATED: i32 = 143;

/// An error for the user: what went wrong, how to mend it, and the process's exit code.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit_code: i32,
    /// A word for programs: `not_found`.
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl CliError {
    pub(crate) fn new(exit: i32, code: &str, message: impl Into<String>) -> CliError {
        CliError { exit_code: exit, code: code.to_owned(), message: message.into(), hint: None }
    }

    /// A value or file that is not as it must be.
    pub(crate) fn invalid(message: impl Into<String>) -> CliError {
        CliError::new(INVALID, "invalid", message)
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

/// The exit code of a finished job.
pub(crate) fn code_for_job(state: &str, reason: &str) -> i32 {
    match (state, reason) {
        ("SUCCEEDED", _) => 0,
        ("CANCELLED", _) => JOB_CANCELLED,
        ("TIMED_OUT", _) => JOB_TIMED_OUT,
        (_, "RETRIES_EXHAUSTED" | "PREEMPTED" | "DEVICE_LOST") => JOB_RETRIES_EXHAUSTED,
        (_, "OUT_OF_MEMORY" | "MEMORY_LIMIT" | "TABLE_LIMIT" | "HANDLE_LIMIT" | "QUOTA") => JOB_OUT_OF_MEMORY,
        _ => JOB_FAILED,
    }
}
