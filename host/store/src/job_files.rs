//! Files of jobs: the outputs that plugins wrote by name, the items that they logged by step, and the logs and
//! recordings of attempts.
//!
//! One trait, [`JobFiles`], for every place where they can be. Outputs and logged items are replaced as a whole. Logs and
//! recordings only grow. Plugins and clients choose the paths of outputs and the names of logged items, so
//! [`is_output_path`](crate::outputs::is_output_path) checks each before it reaches the store.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use crate::error::StoreError;
use crate::logged_items::{LoggedKey, StoredItem};
use crate::outputs::OutputFile;
use crate::records::JobLease;

mod local;
mod objects;
#[cfg(test)]
mod tests;

pub use local::LocalJobFiles;
pub use objects::ObjectJobFiles;

/// The files of all jobs. Shared by threads; every process opens its own instance. Every method can block on a disk or a
/// network, so call it from a thread that can block. `job` is a job's identifier.
pub trait JobFiles: Debug + Send + Sync {
    /// Stores an output durably, replacing any output of the same path, which must satisfy
    /// [`is_output_path`](crate::outputs::is_output_path).
    ///
    /// # Errors
    /// Returns `Io` or `Object` if it cannot be written.
    fn write_output(&self, job: &str, path: &str, data: &[u8]) -> Result<(), StoreError>;

    /// Returns a job's outputs, sorted by path, at most [`OUTPUTS_LISTED_MAX`](crate::limits::OUTPUTS_LISTED_MAX). Empty
    /// if the job wrote nothing.
    ///
    /// # Errors
    /// Returns any error of the file system or the object store.
    fn list_outputs(&self, job: &str) -> io::Result<Vec<OutputFile>>;

    /// Opens an output and returns it with its size in bytes, or `None` if no output has this path. The content of the
    /// opened file does not change, even if the job replaces the output.
    ///
    /// # Errors
    /// Returns any error of the file system or the object store.
    fn open_output(&self, job: &str, path: &str) -> io::Result<Option<(File, u64)>>;

    /// Returns a directory of this machine with a job's outputs. It does not exist if the job wrote nothing.
    ///
    /// # Errors
    /// Returns any error of the file system or the object store.
    fn output_directory(&self, job: &str) -> io::Result<PathBuf>;

    /// Stores a logged item durably, replacing one with the same key.
    ///
    /// # Errors
    /// Returns `Io` or `Object` if it cannot be written.
    fn write_logged_item(&self, job: &str, key: &LoggedKey, data: &[u8]) -> Result<(), StoreError>;

    /// Returns a job's logged items, sorted by key. Empty if the job logged nothing.
    ///
    /// # Errors
    /// Returns any error of the file system or the object store.
    fn list_logged_items(&self, job: &str) -> io::Result<Vec<StoredItem>>;

    /// Returns the file of a logged item, or `None` if there is no item with this key.
    ///
    /// # Errors
    /// Returns any error of the file system or the object store.
    fn read_logged_item(&self, job: &str, key: &LoggedKey) -> io::Result<Option<Vec<u8>>>;

    /// Opens the log of an attempt for appending, and creates it if it does not exist. A log has one writer.
    ///
    /// # Errors
    /// Returns any error of the file system or the object store.
    fn open_log(&self, job: &str, attempt: u32) -> io::Result<Box<dyn AttemptLog>>;

    /// Opens the log of the attempt of a lease as [`open_log`](Self::open_log) does. If lines are written to records, they are
    /// refused once the lease is over.
    ///
    /// # Errors
    /// Returns any error of the file system, the object store or the records.
    fn open_leased_log(&self, lease: &JobLease) -> io::Result<Box<dyn AttemptLog>> {
        self.open_log(&lease.job, lease.attempt)
    }

    /// Returns the size of a log in bytes; 0 if it does not exist.
    ///
    /// # Errors
    /// Returns any error of the file system or the object store.
    fn log_bytes(&self, job: &str, attempt: u32) -> io::Result<u64>;

    /// Returns bytes of a log: those of the range that exist.
    ///
    /// # Errors
    /// Returns any error of the file system or the object store.
    fn read_log(&self, job: &str, attempt: u32, range: Range<u64>) -> io::Result<Vec<u8>>;

    /// Creates the recording of an attempt, empty. A recording has one writer.
    ///
    /// # Errors
    /// Returns any error of the file system or the object store.
    fn create_recording(&self, job: &str, attempt: u32) -> io::Result<Box<dyn AttemptLog>>;

    /// Returns the recording of an attempt; empty if it does not exist.
    ///
    /// # Errors
    /// Returns any error of the file system or the object store.
    fn read_recording(&self, job: &str, attempt: u32) -> io::Result<Vec<u8>>;

    /// Returns the bytes of a job's outputs, logged items, logs and recordings.
    ///
    /// # Errors
    /// Returns `Io` or `Object`.
    fn job_bytes(&self, job: &str) -> Result<u64, StoreError>;

    /// Removes a job's outputs, logged items, logs and recordings. Returns the bytes that this freed. Removing again
    /// completes an interrupted removal.
    ///
    /// # Errors
    /// Returns `BadName` if the identifier is not valid; `Io` or `Object`, after which removing again is safe.
    fn remove(&self, job: &str) -> Result<u64, StoreError>;
}

/// The log of an attempt, opened for appending.
pub trait AttemptLog: Debug + Send + Sync {
    /// Returns the size of the log in bytes, including what readers do not see yet.
    fn bytes(&self) -> u64;

    /// Appends bytes, all or none.
    ///
    /// # Errors
    /// Returns any error of the file system or the object store.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Shows everything that was appended to readers. Called twice a second.
    ///
    /// # Errors
    /// Returns any error of the file system or the object store.
    fn flush(&mut self) -> io::Result<()>;

    /// Makes everything that was appended durable, and shows it to readers.
    ///
    /// # Errors
    /// Returns any error of the file system or the object store.
    fn sync(&mut self) -> io::Result<()>;
}

/// Returns `BadName` for text that is not a job's identifier.
fn check_job(job: &str) -> Result<(), StoreError> {
    if !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
        return Ok(());
    }
    Err(StoreError::BadName { name: job.to_owned() })
}
