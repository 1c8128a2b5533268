//! The interface of the records of attempts whose ranks are on several hosts.

use std::fmt;

use super::{AttemptHost, HostPart, JobLease, MeetingPoint};
use crate::error::RecordError;

/// The records of attempts on several hosts. Each method is one transaction.
pub trait AttemptHostRecords: fmt::Debug + Send + Sync {
    /// Records where the ranks of an attempt meet. It is removed when the attempt ends.
    ///
    /// # Errors
    /// Returns `Fenced`; `Finished`; `NoSuchJob`; `Database`.
    fn set_meeting_point(&self, lease: &JobLease, point: &MeetingPoint) -> Result<(), RecordError>;

    /// Returns the parts of running attempts that a host has and does not lead.
    ///
    /// # Errors
    /// Returns `Database`.
    fn parts_of_host(&self, host_id: &str) -> Result<Vec<HostPart>, RecordError>;

    /// Takes a part of a running attempt for a process of a batch job. Returns `None` if the job has no running attempt of
    /// this batch job, or the part is taken.
    ///
    /// # Errors
    /// Returns `NoSuchJob`; `Database`.
    fn take_part(
        &self,
        job: &str,
        batch_job: &str,
        part: u32,
        host: &AttemptHost,
    ) -> Result<Option<HostPart>, RecordError>;
}
