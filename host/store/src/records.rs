//! Job records: what was asked for, who works on it, how it went.
//!
//! One trait, [`JobRecords`], so that another engine can take SQLite's place. Each method is one
//! transaction and may wait for the disk: call from a thread that may block. Every write of a
//! worker carries its [`JobLease`], and a lease that is over changes nothing ([`RecordError::Fenced`]).
//! Times are arguments. Which of the queued jobs is next is not decided here.

use std::collections::HashMap;

use serde::Serialize;

use crate::clock::UnixMillis;
use crate::error::RecordError;

pub mod id;
mod job;
mod schedule;
pub mod sqlite;
mod state;
#[cfg(test)]
mod tests;

pub use job::{
    ActiveJob, AttemptUsage, ClaimedJob, JobAttempt, JobLease, JobRecord, NewJob, QueuedJob, SchedulingRequest,
    UsageTotal,
};
pub use schedule::JobSchedule;
pub use state::{JobState, ParseJobStateError, StateReason};

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
    pub at_ms: UnixMillis,
}

/// What showing a job takes besides the job itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobDetails {
    /// The attempts at it, first one first.
    pub attempts: Vec<JobAttempt>,
    /// The last point of each of its series by the newest attempt that has any, by name.
    pub latest: Vec<MetricPoint>,
}

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobEvent {
    /// Grows with every event of any job; the cursor of [`JobRecords::events`].
    pub sequence: u64,
    /// The job's identifier.
    pub job: String,
    /// When.
    pub at_ms: UnixMillis,
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
    /// Of one of these projects, too; of none where it is empty.
    pub projects: Option<Vec<String>>,
    /// Of this experiment.
    pub experiment: Option<String>,
    /// At most so many; 0 means the maximum, `limits::JOBS_LISTED_MAX`.
    pub limit: u32,
    /// Only jobs older than the one with this cursor.
    pub before: Option<u64>,
}

/// The records of all jobs. Shared by threads; every process opens its own.
pub trait JobRecords: Send + Sync {
    /// Records a new job, `Queued`.
    ///
    /// # Errors
    /// `Invalid` where the project's name, the spec or the key cannot be; `Database`.
    fn submit(&self, job: &NewJob, now_ms: UnixMillis) -> Result<JobRecord, RecordError>;

    /// The job that was submitted under this idempotency key, if there is one.
    ///
    /// # Errors
    /// `Database`.
    fn find_by_idempotency_key(&self, key: &str) -> Result<Option<JobRecord>, RecordError>;

    /// The job of this name or identifier.
    ///
    /// # Errors
    /// `NoSuchJob`; `Database`.
    fn get(&self, name_or_id: &str) -> Result<JobRecord, RecordError>;

    /// Jobs, newest first.
    ///
    /// # Errors
    /// `Database`.
    fn list(&self, filter: &JobFilter) -> Result<Vec<JobRecord>, RecordError>;

    /// How many jobs are in each state that any is in.
    ///
    /// # Errors
    /// `Database`.
    fn count_by_state(&self) -> Result<Vec<(JobState, u64)>, RecordError>;

    /// Queued jobs in the order of their turns: of highest priority, those that are not preemptible first, oldest first.
    /// Whoever may take another's place comes before it, or the two would take it from each other for ever.
    ///
    /// # Errors
    /// `Database`.
    fn queued_jobs(&self) -> Result<Vec<QueuedJob>, RecordError>;

    /// Active jobs, oldest first.
    ///
    /// # Errors
    /// `Database`.
    fn active_jobs(&self) -> Result<Vec<ActiveJob>, RecordError>;

    /// Takes a queued job, with slots of this pool: it is `Starting`, with a new attempt and a new epoch. None where it
    /// is not queued, or not to start yet. Two callers never get the same attempt.
    ///
    /// # Errors
    /// `NoSuchJob`; `Database`.
    fn claim(&self, id: &str, pool: &str, now_ms: UnixMillis) -> Result<Option<ClaimedJob>, RecordError>;

    /// Raises the epoch of an active job, so that whoever worked on it is fenced. The server does
    /// this at its start, and with a worker that it gave up on, before it decides what comes next.
    ///
    /// # Errors
    /// `NoSuchJob`; `Finished`; `Invalid` where the job is queued; `Database`.
    fn take_over(&self, id: &str, now_ms: UnixMillis) -> Result<JobLease, RecordError>;

    /// Active jobs: after a restart, those that a previous server left behind.
    ///
    /// # Errors
    /// `Database`.
    fn jobs_left_active(&self) -> Result<Vec<JobRecord>, RecordError>;

    /// Moves a job and its attempt to `Starting`, `ActiveJob` or `Stopping`.
    ///
    /// # Errors
    /// `Fenced`; `Finished`; `NoSuchJob`; `Invalid` for any other state; `Database`.
    fn set_state(
        &self,
        lease: &JobLease,
        state: JobState,
        reason: &StateReason,
        now_ms: UnixMillis,
    ) -> Result<(), RecordError>;

    /// Records the device that the attempt runs on, and whether its seconds come from a clock of its own.
    ///
    /// # Errors
    /// As `set_state`.
    fn set_device(&self, lease: &JobLease, device: &str, exact: bool) -> Result<(), RecordError>;

    /// Records steps done and to do, and what the attempt took so far. The answer says whether
    /// somebody asked the job to stop.
    ///
    /// # Errors
    /// As `set_state`.
    fn record_progress(
        &self,
        lease: &JobLease,
        step: u64,
        steps_target: u64,
        usage: &AttemptUsage,
    ) -> Result<Option<StateReason>, RecordError>;

    /// Records points of series, all or none. The same series and step again, in one attempt,
    /// replaces the value. Past `limits::POINTS_MAX` points of a job its series are thinned, and an event says so.
    ///
    /// # Errors
    /// As `set_state`; `Invalid` past `limits::SERIES_MAX` names, or for a long one.
    fn record_metrics(&self, lease: &JobLease, points: &[MetricPoint]) -> Result<(), RecordError>;

    /// Records something that happened. Whoever knows the job may say so; no lease is needed.
    ///
    /// # Errors
    /// `NoSuchJob`; `Database`.
    fn record_event(&self, id: &str, kind: &str, text: &str, now_ms: UnixMillis) -> Result<(), RecordError>;

    /// Ends the attempt. The job stays where it is: `requeue` or `finish_job` follows.
    ///
    /// # Errors
    /// As `set_state`.
    fn finish_attempt(
        &self,
        lease: &JobLease,
        state: JobState,
        reason: &StateReason,
        usage: &AttemptUsage,
        now_ms: UnixMillis,
    ) -> Result<(), RecordError>;

    /// Ends the job, and its attempt where that is still open. The lease is over.
    ///
    /// # Errors
    /// As `set_state`; `Invalid` where `state` is not final.
    fn finish_job(
        &self,
        lease: &JobLease,
        state: JobState,
        reason: &StateReason,
        now_ms: UnixMillis,
    ) -> Result<JobRecord, RecordError>;

    /// Puts the job back into the queue, not to start before a time. Ends its attempt where that
    /// is still open. The lease is over. A job that was asked to stop is `Cancelled` instead.
    ///
    /// # Errors
    /// As `set_state`.
    fn requeue(
        &self,
        lease: &JobLease,
        reason: &StateReason,
        not_before_ms: UnixMillis,
        now_ms: UnixMillis,
    ) -> Result<JobRecord, RecordError>;

    /// Asks a job to stop. A queued one is `Cancelled` at once; an active one learns of it from
    /// `record_progress`; asking again changes nothing.
    ///
    /// # Errors
    /// `NoSuchJob`; `Finished`; `Database`.
    fn request_stop(&self, id: &str, reason: &StateReason, now_ms: UnixMillis) -> Result<JobRecord, RecordError>;

    /// Forgets a job that is over, and all that was recorded about it but what it took. Its name is not used again.
    ///
    /// # Errors
    /// `NoSuchJob`; `Invalid` where it is not over; `Database`.
    fn remove(&self, id: &str) -> Result<JobRecord, RecordError>;

    /// Gives the disk space of what was removed back.
    ///
    /// # Errors
    /// `Database`.
    fn compact(&self) -> Result<(), RecordError>;

    /// What jobs took so far, by project and key.
    ///
    /// # Errors
    /// `Database`.
    fn usage_totals(&self) -> Result<Vec<UsageTotal>, RecordError>;

    /// The attempts at a job, first one first.
    ///
    /// # Errors
    /// `NoSuchJob`; `Database`.
    fn attempts(&self, id: &str) -> Result<Vec<JobAttempt>, RecordError>;

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

    /// What showing jobs takes besides the jobs themselves, by identifier. Those that are not there are left out.
    ///
    /// # Errors
    /// `Database`.
    fn job_details(&self, ids: &[String]) -> Result<HashMap<String, JobDetails>, RecordError>;

    /// Events after a sequence number, of one job or of all, oldest first. `limit` 0 means the
    /// maximum, `limits::EVENTS_LISTED_MAX`.
    ///
    /// # Errors
    /// `Database`.
    fn events(&self, id: Option<&str>, after: u64, limit: u32) -> Result<Vec<JobEvent>, RecordError>;

    /// The newest events of a job, oldest first. `limit` 0 means the maximum, `limits::EVENTS_LISTED_MAX`.
    ///
    /// # Errors
    /// `Database`.
    fn newest_events(&self, id: &str, limit: u32) -> Result<Vec<JobEvent>, RecordError>;

    /// The events of some kinds of a job, oldest first; of more than `limits::EVENTS_LISTED_MAX` the newest.
    ///
    /// # Errors
    /// `Database`.
    fn events_of_kinds(&self, id: &str, kinds: &[&str]) -> Result<Vec<JobEvent>, RecordError>;

    /// How many events of a kind a job has.
    ///
    /// # Errors
    /// `Database`.
    fn count_events(&self, id: &str, kind: &str) -> Result<u64, RecordError>;

    /// Records a schedule, in the place of one of that name.
    ///
    /// # Errors
    /// `Invalid` where its name or specification cannot be; `Database`.
    fn put_schedule(&self, schedule: &JobSchedule) -> Result<(), RecordError>;

    /// The schedules, by name.
    ///
    /// # Errors
    /// `Database`.
    fn schedules(&self) -> Result<Vec<JobSchedule>, RecordError>;

    /// Forgets a schedule. False where there is none of that name.
    ///
    /// # Errors
    /// `Database`.
    fn remove_schedule(&self, name: &str) -> Result<bool, RecordError>;

    /// Records that a schedule's time has come: what was due until `due_ms` is dealt with, by the job of that name, or by
    /// leaving it out. False where somebody else dealt with it, or it is gone.
    ///
    /// # Errors
    /// `Database`.
    fn advance_schedule(&self, name: &str, due_ms: UnixMillis, job: Option<&str>) -> Result<bool, RecordError>;

    /// The sequence of the newest event of any job; 0 before the first.
    ///
    /// # Errors
    /// `Database`.
    fn newest_event_sequence(&self) -> Result<u64, RecordError>;
}
