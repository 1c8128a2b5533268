//! Schedules: jobs that are submitted periodically by cron.

use saggar_clock::UnixMillis;
use serde::Serialize;

use crate::rights::AccessRights;

/// A job to submit at certain times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobSchedule {
    /// Its name, valid as for models.
    pub name: String,
    /// The times, as five cron fields in UTC.
    pub cron: String,
    /// The job's specification: a JSON object.
    pub spec: String,
    /// The key that created it, whose limits apply to its jobs.
    pub owner: Option<String>,
    /// The rights of that key at creation.
    #[serde(skip)]
    pub rights: AccessRights,
    /// The time it was created.
    pub created_ms: UnixMillis,
    /// Scheduled times up to this one have been handled.
    pub settled_ms: UnixMillis,
    /// The last job that it submitted.
    pub last_job: Option<String>,
}
