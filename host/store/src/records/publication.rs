//! Publications of model versions by jobs of shared records.
//!
//! A worker sends the files of a version, and then registers the publication. The registration is refused if the job has
//! another owner by then, so an attempt that was replaced publishes nothing. From the registration on, the version is to
//! become visible: the worker makes it visible, or a server does so after the attempt has ended. The row is removed when the
//! version is visible.

use std::fmt::Debug;

use super::JobLease;
use crate::error::RecordError;
use crate::versions::publication_fence::PendingPublication;

/// The records of publications. Each method is one transaction.
pub trait PublicationRecords: Debug + Send + Sync {
    /// Registers a publication of a lease's attempt, or changes the number of its version, and renews the lease, so that
    /// the attempt has the time of a lease to make the version visible.
    ///
    /// # Errors
    /// Returns `Fenced`; `Finished`; `NoSuchJob`; `Database`.
    fn register_publication(&self, lease: &JobLease, publication: &PendingPublication) -> Result<(), RecordError>;

    /// Renews a lease before a write that no record can refuse afterwards, so that the attempt has the time of a lease for it.
    ///
    /// # Errors
    /// Returns `Fenced`; `Finished`; `NoSuchJob`; `Database`.
    fn renew_for_write(&self, lease: &JobLease) -> Result<(), RecordError>;

    /// Records that the version of a publication is visible. Does nothing if that is recorded already.
    ///
    /// # Errors
    /// Returns `Database`.
    fn confirm_publication(&self, model: &str, version: u64) -> Result<(), RecordError>;

    /// Returns the publications whose attempt has ended before their version was known to be visible.
    ///
    /// # Errors
    /// Returns `Database`.
    fn unfinished_publications(&self) -> Result<Vec<PendingPublication>, RecordError>;

    /// Changes the number of the version of an unfinished publication, if it still has this one. Returns whether it did.
    ///
    /// # Errors
    /// Returns `Database`.
    fn renumber_publication(&self, publication: &PendingPublication, version: u64) -> Result<bool, RecordError>;
}
