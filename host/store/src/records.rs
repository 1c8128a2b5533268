//! Job records: what was asked for, who works on it, how it went.
//!
//! One trait, [`Records`], so that another engine can take SQLite's place. Each method is one
//! transaction and may wait for the disk: call from a thread that may block. Every write of a
//! worker carries its [`Lease`], and a lease that is over changes nothing ([`RecordError::Fenced`]).
//! Times are arguments.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::error::RecordError;

pub mod id;
pub mod sqlite;
#[cfg(test)]
mod tests;

/// Where a job, or an attempt at it, stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobState {
    /// Waiting for its turn.
    Queued,
    /// Claimed; the worker is on its way.
    Starting,
    /// The training is under way.
    Running,
    /// Told to stop; saving its state.
    Stopping,
    /// Done.
    Succeeded,
    /// Ended by an error.
    Failed,
    /// Ended by a user.
    Cancelled,
    /// Ended by its maximum run time.
    TimedOut,
}

impl JobState {
    /// Every state, in the order in which a job meets them.
    pub const ALL: [JobState; 8] = [
        JobState::Queued,
        JobState::Starting,
        JobState::Running,
        JobState::Stopping,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Cancelled,
        JobState::TimedOut,
    ];

    /// The name users see: `TIMED_OUT`.
    pub const fn name(self) -> &'static str {
        match self {
            JobState::Queued => "QUEUED",
            JobState::Starting => "STARTING",
            JobState::Running => "RUNNING",
            JobState::Stopping => "STOPPING",
            JobState::Succeeded => "SUCCEEDED",
            JobState::Failed => "FAILED",
            JobState::Cancelled => "CANCELLED",
            JobState::TimedOut => "TIMED_OUT",
        }
    }

    /// Whether nothing comes after it.
    pub const fn is_final(self) -> bool {
        match self {
            JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::TimedOut => true,
            JobState::Queued | JobState::Starting | JobState::Running | JobState::Stopping => false,
        }
    }

    /// Whether a worker has it.
    pub const fn is_active(self) -> bool {
        match self {
            JobState::Starting | JobState::Running | JobState::Stopping => true,
            JobState::Queued | JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::TimedOut => {
                false
            }
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Text that is no state's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no job state")]
pub struct NotAState(pub String);

impl FromStr for JobState {
    type Err = NotAState;

    fn from_str(text: &str) -> Result<JobState, NotAState> {
        let found = JobState::ALL.into_iter().find(|state| state.name() == text);
        found.ok_or_else(|| NotAState(text.to_owned()))
    }
}

/// Why something is in its state: a code for machines, a sentence for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// `UPPER_SNAKE`: `HOST_RESTART`, `DEVICE_LOST`; empty where there is nothing to explain.
    pub code: String,
    /// One sentence, for people.
    pub sentence: String,
}

impl Reason {
    /// A reason of this code and sentence.
    pub fn new(code: impl Into<String>, sentence: impl Into<String>) -> Reason {
        Reason { code: code.into(), sentence: sentence.into() }
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewJob {
    /// The project: a name as of models. The job is called `<project>-<number>`.
    pub project: String,
    /// The task of the project's file.
    pub task: String,
    /// Everything the worker needs to know: a JSON object.
    pub spec: String,
    /// Jobs of higher priority start first.
    pub priority: i32,
    /// Steps to do, 0 where not known.
    pub steps_target: u64,
    /// Asking again with the same key gives the same job.
    pub idempotency_key: Option<String>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Job {
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
    /// Jobs of higher priority start first.
    pub priority: i32,
    /// Where it stands.
    pub state: JobState,
    /// Why.
    pub reason: Reason,
    /// Set once somebody asked it to stop.
    pub stop: Option<Reason>,
    /// When it was submitted.
    pub created_ms: Millis,
    /// When its first attempt began to run.
    pub started_ms: Option<Millis>,
    /// When it ended.
    pub finished_ms: Option<Millis>,
    /// When it may be claimed at the earliest.
    pub not_before_ms: Millis,
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

/// The right to write about a job, until somebody claims or takes it over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The job's identifier.
    pub job: String,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The fencing epoch.
    pub epoch: u64,
}

/// A job just claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The job, in state `Starting`.
    pub job: Job,
    /// The right to write about it.
    pub lease: Lease,
}

/// What an attempt took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
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
}

/// One try at a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    /// `Starting` and `Running`, then a final state; `Queued` where it was preempted.
    pub state: JobState,
    /// Why it ended.
    pub reason: Reason,
    /// The device it ran on, once known.
    pub device: String,
    /// When it was claimed.
    pub started_ms: Millis,
    /// When it ended.
    pub ended_ms: Option<Millis>,
    /// What it took.
    pub usage: Usage,
}

/// One value of a named series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricPoint {
    /// The series: `loss`.
    pub name: String,
    /// The step.
    pub step: u64,
    /// The value; may be infinite or not a number.
    pub value: f64,
    /// When.
    pub at_ms: Millis,
}

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Grows with every event of any job; the cursor of [`Records::events`].
    pub sequence: u64,
    /// The job's identifier.
    pub job: String,
    /// When.
    pub at_ms: Millis,
    /// `UPPER_SNAKE`: `CLAIMED`, `CHECKPOINT_SAVED`.
    pub kind: String,
    /// One sentence.
    pub text: String,
}

/// Which jobs to list; newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    /// Of these states; of all where empty.
    pub states: Vec<JobState>,
    /// Of this project.
    pub project: Option<String>,
    /// At most so many; 0 means the maximum, `limits::JOBS_LISTED_MAX`.
    pub limit: u32,
    /// Only jobs older than the one with this cursor.
    pub before: Option<u64>,
}

/// The records of all jobs. Shared by threads; every process opens its own.
pub trait Records: Send + Sync {
    /// Records a new job, `Queued`.
    ///
    /// # Errors
    /// `Invalid` where the project's name, the spec or the key cannot be; `Database`.
    fn submit(&self, job: &NewJob, now_ms: Millis) -> Result<Job, RecordError>;

    /// The job of this name or identifier.
    ///
    /// # Errors
    /// `NoSuchJob`; `Database`.
    fn get(&self, name_or_id: &str) -> Result<Job, RecordError>;

    /// Jobs, newest first.
    ///
    /// # Errors
    /// `Database`.
    fn list(&self, filter: &JobFilter) -> Result<Vec<Job>, RecordError>;

    /// How many jobs are in each state that any is in.
    ///
    /// # Errors
    /// `Database`.
    fn count_by_state(&self) -> Result<Vec<(JobState, u64)>, RecordError>;

    /// Takes the queued job of highest priority, oldest first, among those that may start: it is
    /// `Starting`, with a new attempt and a new epoch. Two callers never get the same attempt.
    ///
    /// # Errors
    /// `Database`.
    fn claim_next(&self, now_ms: Millis) -> Result<Option<Claim>, RecordError>;

    /// Raises the epoch of an active job, so that whoever worked on it is fenced. The server does
    /// this at its start, and with a worker that it gave up on, before it decides what comes next.
    ///
    /// # Errors
    /// `NoSuchJob`; `Finished`; `Invalid` where the job is queued; `Database`.
    fn take_over(&self, id: &str, now_ms: Millis) -> Result<Lease, RecordError>;

    /// Active jobs: after a restart, those that a previous server left behind.
    ///
    /// # Errors
    /// `Database`.
    fn jobs_left_running(&self) -> Result<Vec<Job>, RecordError>;

    /// Moves a job and its attempt to `Starting`, `Running` or `Stopping`.
    ///
    /// # Errors
    /// `Fenced`; `Finished`; `NoSuchJob`; `Invalid` for any other state; `Database`.
    fn set_state(&self, lease: &Lease, state: JobState, reason: &Reason, now_ms: Millis) -> Result<(), RecordError>;

    /// Records the device that the attempt runs on.
    ///
    /// # Errors
    /// As `set_state`.
    fn set_device(&self, lease: &Lease, device: &str) -> Result<(), RecordError>;

    /// Records steps done and to do, and what the attempt took so far. The answer says whether
    /// somebody asked the job to stop.
    ///
    /// # Errors
    /// As `set_state`.
    fn progress(
        &self,
        lease: &Lease,
        step: u64,
        steps_target: u64,
        usage: &Usage,
    ) -> Result<Option<Reason>, RecordError>;

    /// Records points of series, all or none. The same series and step again, in one attempt,
    /// replaces the value.
    ///
    /// # Errors
    /// As `set_state`; `Invalid` past `limits::SERIES_MAX` names.
    fn record_metrics(&self, lease: &Lease, points: &[MetricPoint]) -> Result<(), RecordError>;

    /// Records something that happened. Whoever knows the job may say so; no lease is needed.
    ///
    /// # Errors
    /// `NoSuchJob`; `Database`.
    fn record_event(&self, id: &str, kind: &str, text: &str, now_ms: Millis) -> Result<(), RecordError>;

    /// Ends the attempt. The job stays where it is: `requeue` or `finish_job` follows.
    ///
    /// # Errors
    /// As `set_state`.
    fn finish_attempt(
        &self,
        lease: &Lease,
        state: JobState,
        reason: &Reason,
        usage: &Usage,
        now_ms: Millis,
    ) -> Result<(), RecordError>;

    /// Ends the job, and its attempt where that is still open. The lease is over.
    ///
    /// # Errors
    /// As `set_state`; `Invalid` where `state` is not final.
    fn finish_job(&self, lease: &Lease, state: JobState, reason: &Reason, now_ms: Millis) -> Result<Job, RecordError>;

    /// Puts the job back into the queue, not to start before a time. Ends its attempt where that
    /// is still open. The lease is over. A job that was asked to stop is `Cancelled` instead.
    ///
    /// # Errors
    /// As `set_state`.
    fn requeue(
        &self,
        lease: &Lease,
        reason: &Reason,
        not_before_ms: Millis,
        now_ms: Millis,
    ) -> Result<Job, RecordError>;

    /// Asks a job to stop. A queued one is `Cancelled` at once; an active one learns of it from
    /// `progress`; asking again changes nothing.
    ///
    /// # Errors
    /// `NoSuchJob`; `Finished`; `Database`.
    fn request_stop(&self, id: &str, reason: &Reason, now_ms: Millis) -> Result<Job, RecordError>;

    /// The attempts at a job, first one first.
    ///
    /// # Errors
    /// `NoSuchJob`; `Database`.
    fn attempts(&self, id: &str) -> Result<Vec<Attempt>, RecordError>;

    /// Names of a job's series, sorted.
    ///
    /// # Errors
    /// `Database`.
    fn series_names(&self, id: &str) -> Result<Vec<String>, RecordError>;

    /// Points of a series from a step on, in order of steps. Where several attempts did a step,
    /// the latest counts. `limit` 0 means the maximum, `limits::POINTS_LISTED_MAX`.
    ///
    /// # Errors
    /// `Database`.
    fn series(&self, id: &str, name: &str, from_step: u64, limit: u32) -> Result<Vec<MetricPoint>, RecordError>;

    /// The last point of each series, by name.
    ///
    /// # Errors
    /// `Database`.
    fn latest_metrics(&self, id: &str) -> Result<Vec<MetricPoint>, RecordError>;

    /// Events after a sequence number, of one job or of all, oldest first. `limit` 0 means the
    /// maximum, `limits::EVENTS_LISTED_MAX`.
    ///
    /// # Errors
    /// `Database`.
    fn events(&self, id: Option<&str>, after: u64, limit: u32) -> Result<Vec<Event>, RecordError>;
}
