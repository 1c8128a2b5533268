//! Job records in SQLite: one file, write-ahead log, every commit synced.
//!
//! Several processes and threads can have it open. Writes are `BEGIN IMMEDIATE` transactions, so a decision and the
//! write that follows from it are atomic. SQLite's types are private to this module.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use saggar_clock::UnixMillis;

use super::{
    ActiveJob, AnnotationChange, AttemptUsage, ClaimedJob, ExperimentCount, ExperimentMembers, JobAnnotations,
    JobAttempt, JobDetails, JobEvent, JobFilter, JobLease, JobMembership, JobRecord, JobRecords, JobSchedule, JobState,
    MetricPoint, NewJob, PausePoint, QueuedJob, StateReason, UsageTotal,
};
use crate::durable;
use crate::error::RecordError;
use crate::limits::RECORDS_BUSY_MS;

mod annotation;
mod event;
mod job;
mod membership;
mod pause;
mod pipeline;
mod removal;
mod row;
mod schedule;
mod series;
mod sweep;
#[cfg(test)]
mod tests;
mod thinning;
mod usage_totals;
mod vacuum;

/// The migrations of the schema, oldest first. Each upgrades a database from the previous version.
pub(super) const SCHEMAS: [&str; 12] = [
    include_str!("sqlite/schema.sql"),
    include_str!("sqlite/demand.sql"),
    include_str!("sqlite/latest.sql"),
    include_str!("sqlite/estimated.sql"),
    include_str!("sqlite/points.sql"),
    include_str!("sqlite/rights.sql"),
    include_str!("sqlite/pipelines.sql"),
    include_str!("sqlite/pause.sql"),
    include_str!("sqlite/sweeps.sql"),
    include_str!("sqlite/annotations.sql"),
    include_str!("sqlite/reused_runs.sql"),
    include_str!("sqlite/populations.sql"),
];

/// The records in one SQLite file.
#[derive(Debug)]
pub(super) struct SqliteRecords {
    path: PathBuf,
    connection: Mutex<Connection>,
}

/// The ways a transaction's body can end, before the database's path is added.
enum TransactionError {
    Sql(rusqlite::Error),
    Record(RecordError),
}

impl From<rusqlite::Error> for TransactionError {
    fn from(error: rusqlite::Error) -> TransactionError {
        TransactionError::Sql(error)
    }
}

impl From<RecordError> for TransactionError {
    fn from(error: RecordError) -> TransactionError {
        TransactionError::Record(error)
    }
}

type TransactionResult<T> = Result<T, TransactionError>;

/// Returns the limit of a listing; 0 means the maximum.
fn clamp_limit(limit: u32, max: u32) -> u32 {
    if limit == 0 { max } else { limit.min(max) }
}

/// Returns SQLite's error as one that names no engine. A full disk becomes an I/O error of that kind.
fn database_error(path: &Path, error: rusqlite::Error) -> RecordError {
    let is_disk_full = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
    let source: Box<dyn std::error::Error + Send + Sync> =
        if is_disk_full { io::Error::new(io::ErrorKind::StorageFull, error).into() } else { error.into() };
    RecordError::Database { database: path.display().to_string(), source }
}

impl SqliteRecords {
    /// Opens the database, creating it or migrating its schema.
    ///
    /// # Errors
    /// Returns `NewerSchema`; `Database`.
    pub(super) fn open(path: &Path) -> Result<SqliteRecords, RecordError> {
        // SQLite gives its other files the same permissions.
        durable::make_private_file(path)
            .map_err(|source| RecordError::Database { database: path.display().to_string(), source: source.into() })?;
        SqliteRecords::from_connection(path, Connection::open(path))
    }

    /// Opens an empty database in memory.
    #[cfg(test)]
    pub(super) fn open_in_memory() -> SqliteRecords {
        SqliteRecords::from_connection(Path::new(":memory:"), Connection::open_in_memory())
            .expect("memory is available")
    }

    fn from_connection(path: &Path, opened: rusqlite::Result<Connection>) -> Result<SqliteRecords, RecordError> {
        let connection = opened.and_then(|connection| {
            connection.busy_timeout(Duration::from_millis(RECORDS_BUSY_MS.into()))?;
            vacuum::enable_incremental_vacuum(&connection)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "foreign_keys", true)?;
            Ok(connection)
        });
        let connection = connection.map_err(|error| database_error(path, error))?;
        let records = SqliteRecords { path: path.to_owned(), connection: Mutex::new(connection) };
        records.write(|tx| records.migrate(tx))?;
        if let Err(error) = vacuum::configure_existing(&records.connection(), path) {
            tracing::warn!(path = %path.display(), %error, "disk space of removed records was not freed; `saggar gc` tries again");
        }
        Ok(records)
    }

    fn migrate(&self, tx: &Transaction<'_>) -> TransactionResult<()> {
        let found: i64 = tx.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let newest = SCHEMAS.len() as i64;
        let done = usize::try_from(found).ok().filter(|done| *done <= SCHEMAS.len());
        let Some(done) = done else {
            let database = self.path.display().to_string();
            return Err(RecordError::NewerSchema { database, found, newest }.into());
        };
        for schema in &SCHEMAS[done..] {
            tx.execute_batch(schema)?;
        }
        Ok(tx.pragma_update(None, "user_version", newest)?)
    }

    /// Returns the connection. A poisoned lock is safe to use: a panic rolls back its transaction.
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock()
    }

    fn write<T>(&self, body: impl FnOnce(&Transaction<'_>) -> TransactionResult<T>) -> Result<T, RecordError> {
        self.transaction(TransactionBehavior::Immediate, body)
    }

    fn read<T>(&self, body: impl FnOnce(&Transaction<'_>) -> TransactionResult<T>) -> Result<T, RecordError> {
        self.transaction(TransactionBehavior::Deferred, body)
    }

    fn transaction<T>(
        &self,
        behaviour: TransactionBehavior,
        body: impl FnOnce(&Transaction<'_>) -> TransactionResult<T>,
    ) -> Result<T, RecordError> {
        let mut connection = self.connection();
        let run = || -> TransactionResult<T> {
            let tx = connection.transaction_with_behavior(behaviour)?;
            let value = body(&tx)?;
            tx.commit()?;
            Ok(value)
        };
        run().map_err(|failure| match failure {
            TransactionError::Sql(error) => database_error(&self.path, error),
            TransactionError::Record(error) => error,
        })
    }
}

impl JobRecords for SqliteRecords {
    fn submit(&self, job: &NewJob, now_ms: UnixMillis) -> Result<JobRecord, RecordError> {
        job::validate(job)?;
        self.write(|tx| job::submit(tx, job, now_ms))
    }

    fn find_by_idempotency_key(&self, key: &str) -> Result<Option<JobRecord>, RecordError> {
        self.read(|tx| job::find_by_idempotency_key(tx, key))
    }

    fn get(&self, name_or_id: &str) -> Result<JobRecord, RecordError> {
        self.read(|tx| job::get(tx, name_or_id))
    }

    fn list(&self, filter: &JobFilter) -> Result<Vec<JobRecord>, RecordError> {
        self.read(|tx| job::list(tx, filter))
    }

    fn projects(&self) -> Result<Vec<(String, UnixMillis, UnixMillis)>, RecordError> {
        self.read(job::projects)
    }

    fn count_by_state(&self) -> Result<Vec<(JobState, u64)>, RecordError> {
        self.read(job::count_by_state)
    }

    fn queued_jobs(&self) -> Result<Vec<QueuedJob>, RecordError> {
        self.read(job::queued_jobs)
    }

    fn unfinished_specs_with(&self, text: &str) -> Result<Vec<String>, RecordError> {
        self.read(|tx| job::unfinished_specs_with(tx, text))
    }

    fn active_jobs(&self) -> Result<Vec<ActiveJob>, RecordError> {
        self.read(job::active_jobs)
    }

    fn claim(&self, id: &str, pool: &str, now_ms: UnixMillis) -> Result<Option<ClaimedJob>, RecordError> {
        self.write(|tx| job::claim(tx, id, pool, now_ms))
    }

    fn take_over(&self, id: &str, now_ms: UnixMillis) -> Result<JobLease, RecordError> {
        self.write(|tx| job::take_over(tx, id, now_ms))
    }

    fn jobs_left_active(&self) -> Result<Vec<JobRecord>, RecordError> {
        self.read(job::list_active)
    }

    fn set_state(
        &self,
        lease: &JobLease,
        state: JobState,
        reason: &StateReason,
        now_ms: UnixMillis,
    ) -> Result<(), RecordError> {
        self.write(|tx| job::set_state(tx, lease, state, reason, now_ms))
    }

    fn set_device(&self, lease: &JobLease, device: &str, exact: bool) -> Result<(), RecordError> {
        self.write(|tx| job::set_device(tx, lease, device, exact))
    }

    fn record_progress(
        &self,
        lease: &JobLease,
        step: u64,
        steps_target: u64,
        usage: &AttemptUsage,
    ) -> Result<Option<StateReason>, RecordError> {
        self.write(|tx| job::record_progress(tx, lease, step, steps_target, usage))
    }

    fn record_metrics(&self, lease: &JobLease, points: &[MetricPoint]) -> Result<(), RecordError> {
        self.write(|tx| series::record_points(tx, lease, points))
    }

    fn record_event(&self, id: &str, kind: &str, text: &str, now_ms: UnixMillis) -> Result<(), RecordError> {
        self.write(|tx| {
            job::get(tx, id)?;
            event::record(tx, id, kind, text, now_ms)
        })
    }

    fn finish_attempt(
        &self,
        lease: &JobLease,
        state: JobState,
        reason: &StateReason,
        usage: &AttemptUsage,
        now_ms: UnixMillis,
    ) -> Result<(), RecordError> {
        self.write(|tx| job::finish_attempt(tx, lease, state, reason, usage, now_ms))
    }

    fn finish_job(
        &self,
        lease: &JobLease,
        state: JobState,
        reason: &StateReason,
        now_ms: UnixMillis,
    ) -> Result<JobRecord, RecordError> {
        self.write(|tx| job::finish(tx, lease, state, reason, now_ms))
    }

    fn requeue(
        &self,
        lease: &JobLease,
        reason: &StateReason,
        not_before_ms: UnixMillis,
        now_ms: UnixMillis,
    ) -> Result<JobRecord, RecordError> {
        self.write(|tx| job::requeue(tx, lease, reason, not_before_ms, now_ms))
    }

    fn pause_at_point(
        &self,
        lease: &JobLease,
        point: &PausePoint,
        usage: &AttemptUsage,
        now_ms: UnixMillis,
    ) -> Result<JobRecord, RecordError> {
        self.write(|tx| pause::pause_at_point(tx, lease, point, usage, now_ms))
    }

    fn set_pause(&self, id: &str, point: Option<&PausePoint>, now_ms: UnixMillis) -> Result<JobRecord, RecordError> {
        point.map_or(Ok(()), PausePoint::validate)?;
        self.write(|tx| pause::set_pause(tx, id, point, now_ms))
    }

    fn request_stop(&self, id: &str, reason: &StateReason, now_ms: UnixMillis) -> Result<JobRecord, RecordError> {
        self.write(|tx| job::request_stop(tx, id, reason, now_ms))
    }

    fn remove(&self, id: &str) -> Result<JobRecord, RecordError> {
        while self.write(|tx| removal::remove_some_points(tx, id))? {
            // A log that cannot be truncated now is truncated after the next removal.
            let _ = vacuum::truncate_log(&self.connection());
        }
        let job = self.write(|tx| removal::remove(tx, id))?;
        if let Err(error) = self.compact() {
            tracing::warn!(job = job.name, %error, "the disk space of its records was not freed; `saggar gc` tries again");
        }
        Ok(job)
    }

    fn compact(&self) -> Result<(), RecordError> {
        let given = vacuum::reclaim(&self.connection(), &self.path);
        given.map_err(|error| database_error(&self.path, error))
    }

    fn usage_totals(&self) -> Result<Vec<UsageTotal>, RecordError> {
        self.read(usage_totals::list)
    }

    fn attempts(&self, id: &str) -> Result<Vec<JobAttempt>, RecordError> {
        self.read(|tx| {
            job::get(tx, id)?;
            row::list_attempts(tx, id)
        })
    }

    fn series_names(&self, id: &str) -> Result<Vec<String>, RecordError> {
        self.read(|tx| series::names(tx, id))
    }

    fn series(&self, id: &str, name: &str, from_step: u64, limit: u32) -> Result<Vec<MetricPoint>, RecordError> {
        self.read(|tx| series::points(tx, id, name, from_step, limit))
    }

    fn job_details(&self, ids: &[String]) -> Result<HashMap<String, JobDetails>, RecordError> {
        self.read(|tx| series::details(tx, ids))
    }

    fn annotate(&self, name_or_id: &str, change: &AnnotationChange) -> Result<JobAnnotations, RecordError> {
        self.write(|tx| annotation::annotate(tx, name_or_id, change))
    }

    fn experiments(&self) -> Result<Vec<ExperimentCount>, RecordError> {
        self.read(annotation::experiments)
    }

    fn experiment_members(
        &self,
        experiment: &str,
        projects: Option<&[String]>,
    ) -> Result<ExperimentMembers, RecordError> {
        self.read(|tx| annotation::experiment_members(tx, experiment, projects))
    }

    fn job_membership(&self, name_or_id: &str) -> Result<JobMembership, RecordError> {
        self.read(|tx| membership::read(tx, name_or_id))
    }

    fn events(&self, id: Option<&str>, after: u64, limit: u32) -> Result<Vec<JobEvent>, RecordError> {
        self.read(|tx| event::list(tx, id, after, limit))
    }

    fn newest_events(&self, id: &str, limit: u32) -> Result<Vec<JobEvent>, RecordError> {
        self.read(|tx| event::list_newest(tx, id, limit))
    }

    fn events_of_kinds(&self, id: &str, kinds: &[&str]) -> Result<Vec<JobEvent>, RecordError> {
        self.read(|tx| event::list_of_kinds(tx, id, kinds))
    }

    fn count_events(&self, id: &str, kind: &str) -> Result<u64, RecordError> {
        self.read(|tx| event::count(tx, id, kind))
    }

    fn put_schedule(&self, schedule: &JobSchedule) -> Result<(), RecordError> {
        schedule::validate(schedule)?;
        self.write(|tx| schedule::put(tx, schedule))
    }

    fn schedules(&self) -> Result<Vec<JobSchedule>, RecordError> {
        self.read(schedule::list)
    }

    fn remove_schedule(&self, name: &str) -> Result<bool, RecordError> {
        self.write(|tx| schedule::remove(tx, name))
    }

    fn advance_schedule(&self, name: &str, due_ms: UnixMillis, job: Option<&str>) -> Result<bool, RecordError> {
        self.write(|tx| schedule::advance(tx, name, due_ms, job))
    }

    fn newest_event_sequence(&self) -> Result<u64, RecordError> {
        self.read(event::newest_sequence)
    }
}
