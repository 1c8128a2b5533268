//! Jobs, attempts at them, and the right to write about them.

use serde::{Deserialize, Serialize};

use super::{JobState, StateReason};
use crate::clock::UnixMillis;
use crate::rights::AccessRights;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewJob {
    /// The project: a name as of models. The job is called `<project>-<number>`.
    pub project: String,
    /// The task of the project's file.
    pub task: String,
    /// Everything the worker needs to know: a JSON object.
    pub spec: String,
    /// What its place in the queue depends on.
    pub demand: SchedulingRequest,
    /// A label that jobs share, across projects.
    pub experiment: Option<String>,
    /// The name of the key that it was submitted with.
    pub owner: Option<String>,
    /// What that key may do.
    pub rights: AccessRights,
    /// Steps to do, 0 where not known.
    pub steps_target: u64,
    /// Asking again with the same key gives the same job.
    pub idempotency_key: Option<String>,
}

/// What a job's turn and place depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulingRequest {
    /// The queue.
    pub queue: String,
    /// Jobs of higher priority start first.
    pub priority: i32,
    /// Whether a job that comes before it may take its place; it goes on from its checkpoint later.
    pub preemptible: bool,
    /// `auto`, `cpu`, `gpu`, or a device's name.
    pub device: String,
    /// Thousandths of a slot that it takes.
    pub slots_milli: u32,
}

impl Default for SchedulingRequest {
    /// One slot of the default queue, on any device.
    fn default() -> SchedulingRequest {
        SchedulingRequest {
            queue: "default".to_owned(),
            priority: 0,
            preemptible: false,
            device: "auto".to_owned(),
            slots_milli: 1000,
        }
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobRecord {
    /// Unique for ever: 26 letters and digits that sort by time.
    pub id: String,
    /// `<project>-<number>`.
    pub name: String,
    /// The project.
    pub project: String,
    /// Its number within the project, from 1, never used twice.
    pub number: u64,
    /// The task of the project's file.
    pub task: String,
    /// A JSON object.
    pub spec: String,
    /// What its place in the queue depends on.
    pub demand: SchedulingRequest,
    /// A label that jobs share, across projects.
    pub experiment: Option<String>,
    /// The name of the key that it was submitted with.
    pub owner: Option<String>,
    /// What that key could do then. Whoever acts for the job asks [`AccessRights::now`].
    #[serde(skip)]
    pub rights: AccessRights,
    /// Where it stands.
    pub state: JobState,
    /// Why.
    pub reason: StateReason,
    /// Set once somebody asked it to stop.
    pub stop: Option<StateReason>,
    /// When it was submitted.
    pub created_ms: UnixMillis,
    /// When its first attempt began to run.
    pub started_ms: Option<UnixMillis>,
    /// When it ended.
    pub finished_ms: Option<UnixMillis>,
    /// When it may be claimed at the earliest.
    pub not_before_ms: UnixMillis,
    /// Steps done.
    pub step: u64,
    /// Steps to do, 0 where not known.
    pub steps_target: u64,
    /// The fencing epoch: raised by every claim and every take-over.
    pub epoch: u64,
    /// Attempts begun.
    pub attempts: u32,
    /// Position in a listing; the cursor of [`JobFilter`].
    pub cursor: u64,
}

/// A queued job, as far as its turn depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedJob {
    /// Its identifier.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: String,
    /// The key that it was submitted with.
    pub owner: Option<String>,
    /// What it asks for.
    pub demand: SchedulingRequest,
    /// When it may be claimed at the earliest.
    pub not_before_ms: UnixMillis,
    /// How long before that it was put back into the queue: the longest that it waits, wherever the clock is set.
    pub backoff_ms: UnixMillis,
    /// Why it was put back into the queue; empty where it never ran.
    pub reason: StateReason,
}

/// An active job, as far as the turns of others depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveJob {
    /// Its identifier.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: String,
    /// The key that it was submitted with.
    pub owner: Option<String>,
    /// What it took.
    pub demand: SchedulingRequest,
    /// The pool that its attempt has its slots from.
    pub pool: String,
    /// When its attempt was claimed.
    pub started_ms: UnixMillis,
    /// `Starting`, `ActiveJob` or `Stopping`.
    pub state: JobState,
}

/// What the attempts of one project and key took together, those of removed jobs included.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UsageTotal {
    /// The project.
    pub project: String,
    /// The key; none for jobs that were submitted without one.
    pub owner: Option<String>,
    /// Seconds that devices worked.
    pub gpu_seconds: f64,
    /// Seconds that attempts ran.
    pub wall_seconds: f64,
}

/// The right to write about a job, until somebody claims or takes it over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobLease {
    /// The job's identifier.
    pub job: String,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The fencing epoch.
    pub epoch: u64,
}

/// A job just claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedJob {
    /// The job, in state `Starting`.
    pub job: JobRecord,
    /// The right to write about it.
    pub lease: JobLease,
}

/// What an attempt took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttemptUsage {
    /// First step it did: the one after its checkpoint's.
    pub first_step: u64,
    /// Last step it did.
    pub last_step: u64,
    /// Seconds from start to end.
    pub wall_seconds: f64,
    /// Seconds the device worked for it.
    pub gpu_seconds: f64,
    /// Most device memory it held.
    pub peak_bytes: u64,
    /// Items it trained on.
    pub samples: u64,
    /// Seconds of taking items to the device.
    pub data_seconds: f64,
    /// Seconds of taking means over worker processes.
    pub all_reduce_seconds: f64,
    /// Seconds of saving checkpoints.
    pub checkpoint_seconds: f64,
}

/// One try at a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobAttempt {
    /// From 1.
    pub number: u32,
    /// `Starting` and `ActiveJob`, then a final state; `Queued` where it was preempted.
    pub state: JobState,
    /// Why it ended.
    pub reason: StateReason,
    /// The device it ran on, once known.
    pub device: String,
    /// Whether the seconds that the device worked are wall time around the work: it has no clock of its own.
    pub seconds_estimated: bool,
    /// The pool that it had its slots from.
    pub pool: String,
    /// When it was claimed.
    pub started_ms: UnixMillis,
    /// When it ended.
    pub ended_ms: Option<UnixMillis>,
    /// What it took.
    pub usage: AttemptUsage,
}
