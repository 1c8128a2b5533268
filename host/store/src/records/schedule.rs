//! Jobs that are submitted again and again, at times of a clock.

use serde::Serialize;

use crate::clock::UnixMillis;
use crate::rights::AccessRights;

/// A job to submit at certain times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobSchedule {
    /// Its name: a name as of models.
    pub name: String,
    /// When: five fields of cron, in UTC.
    pub cron: String,
    /// The job's specification: a JSON object.
    pub spec: String,
    /// The key that it was made with, whose limits its jobs have.
    pub owner: Option<String>,
    /// What that key could do then.
    #[serde(skip)]
    pub rights: AccessRights,
    /// When it was made.
    pub created_ms: UnixMillis,
    /// Times until here are dealt with.
    pub settled_ms: UnixMillis,
    /// The last job that was submitted for it.
    pub last_job: Option<String>,
}
