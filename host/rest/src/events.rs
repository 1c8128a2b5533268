//! `GET /api/v1/jobs/{job}/events`, and the data of the server-sent events of `GET /api/v1/events`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The events of a job, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Events")]
pub struct JobEventListDocument {
    /// The events.
    pub events: Vec<JobEventDocument>,
}

/// An event of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Event")]
pub struct JobEventDocument {
    /// Its number. Later events have larger ones.
    pub sequence: u64,
    /// When it happened, in Unix milliseconds.
    pub at_ms: u64,
    /// Its kind, such as `PUBLISHED`.
    pub kind: String,
    /// What happened.
    pub text: String,
}

/// The data of the server-sent event `note`: an event of a followed job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Note")]
pub struct JobNoteDocument {
    /// The event.
    #[serde(flatten)]
    pub event: JobEventDocument,
    /// The job's name.
    pub job: String,
}

/// The data of the server-sent event `gone`: a job that was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Gone")]
pub struct RemovedJobNote {
    /// The job's identifier.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// The data of the server-sent event `ready`: every followed job was sent once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Ready")]
pub struct JobsReadyNote {
    /// The number of followed jobs.
    pub jobs: usize,
    /// The cursor of the oldest followed job, if older jobs are not followed.
    pub cursor: Option<u64>,
}
