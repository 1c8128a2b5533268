//! The lines of running attempts, in chunks, until their logs are finished.

use std::ops::Range;

use super::JobLease;
use crate::error::RecordError;

/// A chunk of an attempt's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// The position of its first byte in the log.
    pub first_byte: u64,
    /// Whole lines.
    pub text: String,
}

/// The records of the logs of attempts. Each method is one transaction. `job` is a job's identifier.
pub trait LogRecords: std::fmt::Debug + Send + Sync {
    /// Appends whole lines to the log of a lease's attempt. `first_byte` is the position of the first one.
    ///
    /// # Errors
    /// Returns `Fenced`; `Finished`; `NoSuchJob`; `Database`, also if another process has written at this position.
    fn append_log(&self, lease: &JobLease, first_byte: u64, text: &str) -> Result<(), RecordError>;

    /// Returns the chunks of a log that have bytes in this range, in order.
    ///
    /// # Errors
    /// Returns `Database`.
    fn log_chunks(&self, job: &str, attempt: u32, range: Range<u64>) -> Result<Vec<LogChunk>, RecordError>;

    /// Returns the range of a log's bytes that is in chunks, or `None` if the log has no chunk.
    ///
    /// # Errors
    /// Returns `Database`.
    fn log_extent(&self, job: &str, attempt: u32) -> Result<Option<Range<u64>>, RecordError>;

    /// Returns the attempts of a job whose logs have chunks.
    ///
    /// # Errors
    /// Returns `Database`.
    fn attempts_with_chunks(&self, job: &str) -> Result<Vec<u32>, RecordError>;

    /// Removes the chunks of a log before this byte.
    ///
    /// # Errors
    /// Returns `Database`.
    fn remove_log_chunks(&self, job: &str, attempt: u32, end: u64) -> Result<(), RecordError>;
}
