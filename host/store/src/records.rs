//! Job records: the specification, attempts, state and results of each job.
//!
//! One trait, [`JobRecords`], for every engine, with [`SweepRecords`] as its part for hyper-parameter searches and
//! [`LeaseRecords`] as that for leases; [`open`] selects the engine by a URL: SQLite or PostgreSQL. The queries are the same
//! (`queries`). Each method is one transaction and can block on the disk or the network, so call it from a thread that can
//! block. Every write of a worker carries its [`JobLease`]; a lease that has ended changes nothing
//! ([`RecordError::Fenced`]). Times are arguments. Scheduling is elsewhere: records do not decide which queued job starts
//! next.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use saggar_clock::UnixMillis;

use crate::error::RecordError;

mod annotation;
mod attempt_host;
mod attempt_host_records;
mod audit;
mod document;
pub(crate) mod field_rules;
mod host;
mod host_labels;
pub mod id;
mod job;
mod key_usage;
mod lease;
mod log;
mod membership;
mod orders;
mod pause;
mod pipeline;
mod postgres;
mod prediction;
mod publication;
mod queries;
mod query_types;
mod reaper_gate;
mod schedule;
mod session;
mod sqlite;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod transfer;

pub use crate::versions::publication_fence::PendingPublication;
pub use annotation::{AnnotationChange, ExperimentCount, ExperimentMember, ExperimentMembers, JobAnnotations};
pub use attempt_host::{AttemptHost, HostPart, MeetingPoint};
pub use attempt_host_records::AttemptHostRecords;
pub use audit::{AUDIT_ROWS_MAX, AuditFilter, AuditRecords, NewAuditRow, RecordedAuditRow};
pub use document::{DocumentRecords, RecordedDocument};
pub use host::{
    HOST_RENEWAL_INTERVAL, HostDrain, HostKind, HostOffer, HostRecord, HostRecords, HostReserve, HostState, PoolOffer,
};
pub use host_labels::{HostLabels, format_labels};
pub use job::{
    ActiveJob, AttemptUsage, ClaimedJob, JobAttempt, JobLease, JobRecord, NewJob, QueuedJob, SchedulingRequest,
    UsageTotal,
};
pub use key_usage::{KeyRequests, KeyUsageRecords};
pub use lease::{
    DecideLostJob, JobPlacements, LEASE_MS, LeaseRecords, LeaseRenewal, LostJobDecision, PlaceJobs, PlacedClaim,
    PlacedJob, PlacedPreemption, PlacementQuery, PlacementState, QueueCount, QueueSelection, ROOM_CLAIM_MS,
    RunningCount, ServerIdentity,
};
pub use log::{LogChunk, LogRecords};
pub use membership::{JobMembership, StepMembership, TrialMembership};
pub use orders::{JobOrder, JobOrders, RoomClaim};
pub use pause::{PAUSED, PausePoint, PauseStep};
pub use pipeline::{
    NewPipelineRun, PipelineRecords, PipelineRunFilter, PipelineRunRecord, PipelineRunState, PipelineSchedule,
    PipelineStepRecord, PipelineStepState, StepAttemptKey, StepChange,
};
pub use prediction::{NewPrediction, PredictionKey, PredictionRecords, RecordedPrediction};
pub use publication::PublicationRecords;
pub use query_types::{JobDetails, JobEvent, JobFilter, MetricPoint};
pub use reaper_gate::{LEASE_RENEWAL_INTERVAL, ReaperGate};
pub use schedule::JobSchedule;
pub use state::{JobState, ParseJobStateError, StateReason};

pub use sweep::{
    NewSweep, ParseSweepStateError, SweepDecision, SweepRecord, SweepRecords, SweepState, TrialParent, TrialRecord,
    TrialState,
};

pub use postgres::{DatabaseInspection, inspect_database};

pub use transfer::TableDigest;
pub(crate) use transfer::{MIGRATION_DOCUMENT, RecordsDatabase};

use postgres::PostgresRecords;
use sqlite::SqliteRecords;

/// Opens the records at a URL: `sqlite:///absolute/path`, the path of a SQLite file, or
/// `postgres://USER@HOST:PORT/DATABASE?sslmode=...` for a database of PostgreSQL, which has to exist. Creates the schema or
/// migrates it.
///
/// # Errors
/// Returns `UnknownEngine` for any other URL; `NewerSchema`; `IncompleteMigration`; `Database`.
pub fn open(url: impl AsRef<OsStr>) -> Result<Arc<dyn JobRecords>, RecordError> {
    let url = url.as_ref();
    let is_scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let parts = url.to_str().and_then(|text| text.split_once("://")).filter(|(scheme, _)| is_scheme(scheme));
    let path = match parts {
        None => Path::new(url),
        Some(("sqlite", path)) if path.starts_with('/') => Path::new(path),
        Some(("postgres" | "postgresql", _)) => {
            let records = PostgresRecords::open(url.to_str().unwrap_or_default())?;
            check_is_complete(&records, records.database())?;
            return Ok(Arc::new(records));
        }
        Some((scheme, _)) => return Err(RecordError::UnknownEngine { scheme: scheme.to_owned() }),
    };
    Ok(Arc::new(SqliteRecords::open(path)?))
}

/// Returns `IncompleteMigration` if a migration into the database was interrupted.
pub(crate) fn check_is_complete(records: &dyn JobRecords, database: &str) -> Result<(), RecordError> {
    match records.document(MIGRATION_DOCUMENT, 0)? {
        None => Ok(()),
        Some(_) => Err(RecordError::IncompleteMigration { database: database.to_owned() }),
    }
}

/// The version of the database's schema that this build writes.
pub(crate) fn schema_version() -> u64 {
    sqlite::SCHEMAS.len() as u64
}

/// The records of all jobs, with those of sweeps and pipeline runs. Shared by threads; every process opens its own
/// instance.
pub trait JobRecords:
    SweepRecords
    + PipelineRecords
    + LeaseRecords
    + HostRecords
    + AttemptHostRecords
    + DocumentRecords
    + LogRecords
    + PredictionRecords
    + AuditRecords
    + KeyUsageRecords
    + PublicationRecords
{
    /// Records a new job in the state `Queued`.
    ///
    /// # Errors
    /// Returns `Invalid` if the project's name, the specification or the key is not valid; `Database`.
    fn submit(&self, job: &NewJob, now_ms: UnixMillis) -> Result<JobRecord, RecordError>;

    /// Returns the job that was submitted with this idempotency key, or `None`.
    ///
    /// # Errors
    /// Returns `Database`.
    fn find_by_idempotency_key(&self, key: &str) -> Result<Option<JobRecord>, RecordError>;

    /// Returns the job with this name or identifier.
    ///
    /// # Errors
    /// Returns `NoSuchJob`; `Database`.
    fn get(&self, name_or_id: &str) -> Result<JobRecord, RecordError>;

    /// Returns jobs, newest first.
    ///
    /// # Errors
    /// Returns `Database`.
    fn list(&self, filter: &JobFilter) -> Result<Vec<JobRecord>, RecordError>;

    /// Returns the projects that have jobs, each with the time of its oldest job and of its last change, by name.
    ///
    /// # Errors
    /// Returns `Database`.
    fn projects(&self) -> Result<Vec<(String, UnixMillis, UnixMillis)>, RecordError>;

    /// Returns the number of jobs in each state; states without jobs are omitted.
    ///
    /// # Errors
    /// Returns `Database`.
    fn count_by_state(&self) -> Result<Vec<(JobState, u64)>, RecordError>;

    /// Returns queued jobs that are not paused, in the order in which they start: highest priority first, then those that are not
    /// preemptible, then oldest first. A job that can preempt another comes before it; otherwise the two would preempt
    /// each other for ever.
    ///
    /// # Errors
    /// Returns `Database`.
    fn queued_jobs(&self) -> Result<Vec<QueuedJob>, RecordError>;

    /// Returns the specifications of the jobs that are not over and whose specification contains `text`, oldest first.
    ///
    /// # Errors
    /// Returns `Database`.
    fn unfinished_specs_with(&self, text: &str) -> Result<Vec<String>, RecordError>;

    /// Returns active jobs, oldest first.
    ///
    /// # Errors
    /// Returns `Database`.
    fn active_jobs(&self) -> Result<Vec<ActiveJob>, RecordError>;

    /// Claims a queued job, with slots of this pool: it becomes `Starting`, with a new attempt and a new epoch. Returns
    /// `None` if it is not queued, is paused, or its start time has not come. Two callers never get the same attempt.
    /// Only for records with one server; [`LeaseRecords::claim_placed`] claims for one of several.
    ///
    /// # Errors
    /// Returns `NoSuchJob`; `Database`.
    fn claim(&self, id: &str, pool: &str, now_ms: UnixMillis) -> Result<Option<ClaimedJob>, RecordError>;

    /// Raises the epoch of an active job, which fences its current worker. The server does this for active jobs when it
    /// starts, and for a worker that it gave up on, before it decides what to do next.
    ///
    /// # Errors
    /// Returns `NoSuchJob`; `Finished`; `Invalid` if the job is queued; `Database`.
    fn take_over(&self, id: &str, now_ms: UnixMillis) -> Result<JobLease, RecordError>;

    /// Returns the active jobs: after a restart, those that a previous server left.
    ///
    /// # Errors
    /// Returns `Database`.
    fn jobs_left_active(&self) -> Result<Vec<JobRecord>, RecordError>;

    /// Sets the state of a job and its attempt to `Starting`, `Running` or `Stopping`.
    ///
    /// # Errors
    /// Returns `Fenced`; `Finished`; `NoSuchJob`; `Invalid` for any other state; `Database`.
    fn set_state(
        &self,
        lease: &JobLease,
        state: JobState,
        reason: &StateReason,
        now_ms: UnixMillis,
    ) -> Result<(), RecordError>;

    /// Records the device that the attempt runs on, and whether its device seconds come from that device's own clock.
    ///
    /// # Errors
    /// The same as `set_state`.
    fn set_device(&self, lease: &JobLease, device: &str, exact: bool) -> Result<(), RecordError>;

    /// Records completed and total steps, and the attempt's usage so far. Returns whether the job was asked to stop.
    ///
    /// # Errors
    /// The same as `set_state`.
    fn record_progress(
        &self,
        lease: &JobLease,
        step: u64,
        steps_target: u64,
        usage: &AttemptUsage,
    ) -> Result<Option<StateReason>, RecordError>;

    /// Records points of series, all or none. A second point of the same series, step and attempt replaces the first.
    /// Beyond `limits::POINTS_MAX` points of a job its series are thinned, which an event reports.
    ///
    /// # Errors
    /// Returns the same as `set_state`; `Invalid` if there are more than `limits::SERIES_MAX` names, or a name is too
    /// long.
    fn record_metrics(&self, lease: &JobLease, points: &[MetricPoint]) -> Result<(), RecordError>;

    /// Records an event. Needs no lease.
    ///
    /// # Errors
    /// Returns `NoSuchJob`; `Database`.
    fn record_event(&self, id: &str, kind: &str, text: &str, now_ms: UnixMillis) -> Result<(), RecordError>;

    /// Ends the attempt. The job keeps its state: `requeue` or `finish_job` follows.
    ///
    /// # Errors
    /// The same as `set_state`.
    fn finish_attempt(
        &self,
        lease: &JobLease,
        state: JobState,
        reason: &StateReason,
        usage: &AttemptUsage,
        now_ms: UnixMillis,
    ) -> Result<(), RecordError>;

    /// Ends the job, and its attempt if it is still open. The lease ends.
    ///
    /// # Errors
    /// Returns the same as `set_state`; `Invalid` if `state` is not final.
    fn finish_job(
        &self,
        lease: &JobLease,
        state: JobState,
        reason: &StateReason,
        now_ms: UnixMillis,
    ) -> Result<JobRecord, RecordError>;

    /// Puts the job back into the queue, not to start before a given time, and ends its attempt if it is still open.
    /// The lease ends. A job that was asked to stop becomes `Cancelled` instead.
    ///
    /// # Errors
    /// The same as `set_state`.
    fn requeue(
        &self,
        lease: &JobLease,
        reason: &StateReason,
        not_before_ms: UnixMillis,
        now_ms: UnixMillis,
    ) -> Result<JobRecord, RecordError>;

    /// Ends the attempt of a worker that has saved its state at `point`, and the lease. The job is `Queued` and paused,
    /// with the reason [`PAUSED`], if it is still to pause there; otherwise it waits for its next attempt. A job that
    /// was asked to stop becomes `Cancelled` instead.
    ///
    /// # Errors
    /// The same as `set_state`.
    fn pause_at_point(
        &self,
        lease: &JobLease,
        point: &PausePoint,
        usage: &AttemptUsage,
        now_ms: UnixMillis,
    ) -> Result<JobRecord, RecordError>;

    /// Sets where a job pauses, replacing an earlier point; `None` lets it continue to its end. A queued job that has
    /// reached the step is paused at once, and a paused one that has not reached it is queued again.
    ///
    /// # Errors
    /// Returns `NoSuchJob`; `Finished`; `Invalid` if the point is not valid or the job is being stopped; `Database`.
    fn set_pause(&self, id: &str, point: Option<&PausePoint>, now_ms: UnixMillis) -> Result<JobRecord, RecordError>;

    /// Asks a job to stop. A queued job becomes `Cancelled` at once; the worker of an active job sees the request in
    /// the result of `record_progress`. Repeating the request changes nothing.
    ///
    /// # Errors
    /// Returns `NoSuchJob`; `Finished`; `Database`.
    fn request_stop(&self, id: &str, reason: &StateReason, now_ms: UnixMillis) -> Result<JobRecord, RecordError>;

    /// Deletes a finished job and all records about it except its usage. Its name is not used again.
    ///
    /// # Errors
    /// Returns `NoSuchJob`; `Invalid` if the job has not finished; `Database`.
    fn remove(&self, id: &str) -> Result<JobRecord, RecordError>;

    /// Returns the disk space of deleted records to the file system.
    ///
    /// # Errors
    /// Returns `Database`.
    fn compact(&self) -> Result<(), RecordError>;

    /// Returns the total usage of jobs by project and key.
    ///
    /// # Errors
    /// Returns `Database`.
    fn usage_totals(&self) -> Result<Vec<UsageTotal>, RecordError>;

    /// Returns the attempts of a job, in order.
    ///
    /// # Errors
    /// Returns `NoSuchJob`; `Database`.
    fn attempts(&self, id: &str) -> Result<Vec<JobAttempt>, RecordError>;

    /// Returns the names of a job's series, sorted.
    ///
    /// # Errors
    /// Returns `Database`.
    fn series_names(&self, id: &str) -> Result<Vec<String>, RecordError>;

    /// Returns the points of a series from a step on, sorted by step. If several attempts recorded a step, the latest
    /// attempt wins. `limit` 0 means the maximum, `limits::POINTS_LISTED_MAX`.
    ///
    /// # Errors
    /// Returns `Database`.
    fn series(&self, id: &str, name: &str, from_step: u64, limit: u32) -> Result<Vec<MetricPoint>, RecordError>;

    /// Returns the details of jobs by identifier. Missing jobs are omitted.
    ///
    /// # Errors
    /// Returns `Database`.
    fn job_details(&self, ids: &[String]) -> Result<HashMap<String, JobDetails>, RecordError>;

    /// Changes what users wrote about a job, all or nothing. Returns all of it.
    ///
    /// # Errors
    /// Returns `NoSuchJob`; `Invalid` if a tag or the note is too long, or there would be too many tags; `Database`.
    fn annotate(&self, name_or_id: &str, change: &AnnotationChange) -> Result<JobAnnotations, RecordError>;

    /// Returns the experiments that have jobs, with the number of jobs by project and state, sorted.
    ///
    /// # Errors
    /// Returns `Database`.
    fn experiments(&self) -> Result<Vec<ExperimentCount>, RecordError>;

    /// Returns the newest pipeline runs and sweeps of these projects that have jobs of the experiment, at most
    /// `limits::EXPERIMENT_MEMBERS_MAX` of each. `None` means all projects.
    ///
    /// # Errors
    /// Returns `Database`.
    fn experiment_members(
        &self,
        experiment: &str,
        projects: Option<&[String]>,
    ) -> Result<ExperimentMembers, RecordError>;

    /// Returns the trial and the pipeline step that a job was submitted for.
    ///
    /// # Errors
    /// Returns `NoSuchJob`, `Database`.
    fn job_membership(&self, name_or_id: &str) -> Result<JobMembership, RecordError>;

    /// Returns events after a sequence number, of one job or of all, oldest first. `limit` 0 means the maximum,
    /// `limits::EVENTS_LISTED_MAX`.
    ///
    /// # Errors
    /// Returns `Database`.
    fn events(&self, id: Option<&str>, after: u64, limit: u32) -> Result<Vec<JobEvent>, RecordError>;

    /// Returns the newest events of a job, oldest first. `limit` 0 means the maximum, `limits::EVENTS_LISTED_MAX`.
    ///
    /// # Errors
    /// Returns `Database`.
    fn newest_events(&self, id: &str, limit: u32) -> Result<Vec<JobEvent>, RecordError>;

    /// Returns a job's events of some kinds, oldest first; the newest ones if there are more than
    /// `limits::EVENTS_LISTED_MAX`.
    ///
    /// # Errors
    /// Returns `Database`.
    fn events_of_kinds(&self, id: &str, kinds: &[&str]) -> Result<Vec<JobEvent>, RecordError>;

    /// Returns the number of a job's events of a kind.
    ///
    /// # Errors
    /// Returns `Database`.
    fn count_events(&self, id: &str, kind: &str) -> Result<u64, RecordError>;

    /// Records a schedule, replacing any with the same name.
    ///
    /// # Errors
    /// Returns `Invalid` if its name or specification is not valid; `Database`.
    fn put_schedule(&self, schedule: &JobSchedule) -> Result<(), RecordError>;

    /// Returns the schedules, sorted by name.
    ///
    /// # Errors
    /// Returns `Database`.
    fn schedules(&self) -> Result<Vec<JobSchedule>, RecordError>;

    /// Deletes a schedule. Returns `false` if it does not exist.
    ///
    /// # Errors
    /// Returns `Database`.
    fn remove_schedule(&self, name: &str) -> Result<bool, RecordError>;

    /// Records that a schedule's runs up to `due_ms` are handled, by the job with that name or, if `None`, by skipping
    /// them. Returns `false` if another caller already handled them, or the schedule no longer exists.
    ///
    /// # Errors
    /// Returns `Database`.
    fn advance_schedule(&self, name: &str, due_ms: UnixMillis, job: Option<&str>) -> Result<bool, RecordError>;

    /// Returns the sequence number of the newest event of any job; 0 before the first.
    ///
    /// # Errors
    /// Returns `Database`.
    fn newest_event_sequence(&self) -> Result<u64, RecordError>;
}
