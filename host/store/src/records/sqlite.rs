//! Job records in SQLite: one file, write-ahead log, every commit synced.
//!
//! Several processes and threads may have it open. Writes are `BEGIN IMMEDIATE` transactions, so a
//! decision and the write that follows from it are one step.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{
    Attempt, Claim, Details, Event, Job, JobFilter, JobState, Lease, MetricPoint, NewJob, Reason, Records, Running,
    Schedule, Spent, Usage, Waiting,
};
use crate::clock::Millis;
use crate::durable;
use crate::error::RecordError;
use crate::limits::RECORDS_BUSY_MS;

mod job;
mod remove;
mod row;
mod schedule;
mod series;
mod space;
mod thinning;

/// The schema's versions, oldest first. Each brings a database from the version before to its own.
const SCHEMAS: [&str; 6] = [
    include_str!("sqlite/schema.sql"),
    include_str!("sqlite/demand.sql"),
    include_str!("sqlite/latest.sql"),
    include_str!("sqlite/estimated.sql"),
    include_str!("sqlite/points.sql"),
    include_str!("sqlite/rights.sql"),
];

/// The records in one SQLite file.
#[derive(Debug)]
pub struct SqliteRecords {
    path: PathBuf,
    connection: Mutex<Connection>,
}

/// What a transaction's body can end with, before the database's name is added.
enum Failure {
    Sql(rusqlite::Error),
    Record(RecordError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure::Sql(error)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Failure {
        Failure::Record(error)
    }
}

type Outcome<T> = Result<T, Failure>;

impl SqliteRecords {
    /// Opens the database, making it or bringing its schema up to date.
    ///
    /// # Errors
    /// `NewerSchema`; `Database`.
    pub fn open(path: &Path) -> Result<SqliteRecords, RecordError> {
        // SQLite gives the files beside it the same permissions.
        durable::make_private_file(path).map_err(|source| RecordError::File { path: path.to_owned(), source })?;
        let connection = Connection::open(path).and_then(|connection| {
            connection.busy_timeout(Duration::from_millis(RECORDS_BUSY_MS.into()))?;
            space::prepare(&connection)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "foreign_keys", true)?;
            Ok(connection)
        });
        let connection = connection.map_err(|source| RecordError::Database { path: path.to_owned(), source })?;
        let records = SqliteRecords { path: path.to_owned(), connection: Mutex::new(connection) };
        records.write(|tx| records.migrate(tx))?;
        if let Err(error) = space::settle(&records.connection(), path) {
            tracing::warn!(path = %path.display(), %error, "the records give no disk space back; `saggar gc` tries again");
        }
        Ok(records)
    }

    fn migrate(&self, tx: &Transaction<'_>) -> Outcome<()> {
        let found: i64 = tx.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let newest = SCHEMAS.len() as i64;
        let done = usize::try_from(found).ok().filter(|done| *done <= SCHEMAS.len());
        let Some(done) = done else {
            let path = self.path.clone();
            return Err(RecordError::NewerSchema { path, found, newest }.into());
        };
        for schema in &SCHEMAS[done..] {
            tx.execute_batch(schema)?;
        }
        Ok(tx.pragma_update(None, "user_version", newest)?)
    }

    /// The connection. A panic elsewhere left no transaction open: dropping one rolls it back.
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<T>(&self, body: impl FnOnce(&Transaction<'_>) -> Outcome<T>) -> Result<T, RecordError> {
        self.transaction(TransactionBehavior::Immediate, body)
    }

    fn read<T>(&self, body: impl FnOnce(&Transaction<'_>) -> Outcome<T>) -> Result<T, RecordError> {
        self.transaction(TransactionBehavior::Deferred, body)
    }

    fn transaction<T>(
        &self,
        behaviour: TransactionBehavior,
        body: impl FnOnce(&Transaction<'_>) -> Outcome<T>,
    ) -> Result<T, RecordError> {
        let mut connection = self.connection();
        let run = || -> Outcome<T> {
            let tx = connection.transaction_with_behavior(behaviour)?;
            let value = body(&tx)?;
            tx.commit()?;
            Ok(value)
        };
        run().map_err(|failure| match failure {
            Failure::Sql(source) => RecordError::Database { path: self.path.clone(), source },
            Failure::Record(error) => error,
        })
    }
}

impl Records for SqliteRecords {
    fn submit(&self, job: &NewJob, now_ms: Millis) -> Result<Job, RecordError> {
        job::check(job)?;
        self.write(|tx| job::submit(tx, job, now_ms))
    }

    fn submitted(&self, key: &str) -> Result<Option<Job>, RecordError> {
        self.read(|tx| job::submitted(tx, key))
    }

    fn get(&self, name_or_id: &str) -> Result<Job, RecordError> {
        self.read(|tx| job::get(tx, name_or_id))
    }

    fn list(&self, filter: &JobFilter) -> Result<Vec<Job>, RecordError> {
        self.read(|tx| job::list(tx, filter))
    }

    fn count_by_state(&self) -> Result<Vec<(JobState, u64)>, RecordError> {
        self.read(job::count_by_state)
    }

    fn queued(&self) -> Result<Vec<Waiting>, RecordError> {
        self.read(job::queued)
    }

    fn running(&self) -> Result<Vec<Running>, RecordError> {
        self.read(job::running)
    }

    fn claim(&self, id: &str, pool: &str, now_ms: Millis) -> Result<Option<Claim>, RecordError> {
        self.write(|tx| job::claim(tx, id, pool, now_ms))
    }

    fn take_over(&self, id: &str, now_ms: Millis) -> Result<Lease, RecordError> {
        self.write(|tx| job::take_over(tx, id, now_ms))
    }

    fn jobs_left_running(&self) -> Result<Vec<Job>, RecordError> {
        self.read(job::active)
    }

    fn set_state(&self, lease: &Lease, state: JobState, reason: &Reason, now_ms: Millis) -> Result<(), RecordError> {
        self.write(|tx| job::set_state(tx, lease, state, reason, now_ms))
    }

    fn set_device(&self, lease: &Lease, device: &str, exact: bool) -> Result<(), RecordError> {
        self.write(|tx| job::set_device(tx, lease, device, exact))
    }

    fn progress(
        &self,
        lease: &Lease,
        step: u64,
        steps_target: u64,
        usage: &Usage,
    ) -> Result<Option<Reason>, RecordError> {
        self.write(|tx| job::progress(tx, lease, step, steps_target, usage))
    }

    fn record_metrics(&self, lease: &Lease, points: &[MetricPoint]) -> Result<(), RecordError> {
        self.write(|tx| series::record(tx, lease, points))
    }

    fn record_event(&self, id: &str, kind: &str, text: &str, now_ms: Millis) -> Result<(), RecordError> {
        self.write(|tx| {
            job::get(tx, id)?;
            series::event(tx, id, kind, text, now_ms)
        })
    }

    fn finish_attempt(
        &self,
        lease: &Lease,
        state: JobState,
        reason: &Reason,
        usage: &Usage,
        now_ms: Millis,
    ) -> Result<(), RecordError> {
        self.write(|tx| job::finish_attempt(tx, lease, state, reason, usage, now_ms))
    }

    fn finish_job(&self, lease: &Lease, state: JobState, reason: &Reason, now_ms: Millis) -> Result<Job, RecordError> {
        self.write(|tx| job::finish(tx, lease, state, reason, now_ms))
    }

    fn requeue(
        &self,
        lease: &Lease,
        reason: &Reason,
        not_before_ms: Millis,
        now_ms: Millis,
    ) -> Result<Job, RecordError> {
        self.write(|tx| job::requeue(tx, lease, reason, not_before_ms, now_ms))
    }

    fn request_stop(&self, id: &str, reason: &Reason, now_ms: Millis) -> Result<Job, RecordError> {
        self.write(|tx| job::request_stop(tx, id, reason, now_ms))
    }

    fn remove(&self, id: &str) -> Result<Job, RecordError> {
        while self.write(|tx| remove::remove_some_points(tx, id))? {
            // What cannot be cut now is cut with the next.
            let _ = space::truncate_log(&self.connection());
        }
        let job = self.write(|tx| remove::remove(tx, id))?;
        if let Err(error) = self.compact() {
            tracing::warn!(job = job.name, %error, "the disk space of its records was not given back; `saggar gc` tries again");
        }
        Ok(job)
    }

    fn compact(&self) -> Result<(), RecordError> {
        let given = space::give_back(&self.connection(), &self.path);
        given.map_err(|source| RecordError::Database { path: self.path.clone(), source })
    }

    fn spent(&self) -> Result<Vec<Spent>, RecordError> {
        self.read(remove::spent)
    }

    fn attempts(&self, id: &str) -> Result<Vec<Attempt>, RecordError> {
        self.read(|tx| {
            job::get(tx, id)?;
            row::attempts(tx, id)
        })
    }

    fn series_names(&self, id: &str) -> Result<Vec<String>, RecordError> {
        self.read(|tx| series::names(tx, id))
    }

    fn series(&self, id: &str, name: &str, from_step: u64, limit: u32) -> Result<Vec<MetricPoint>, RecordError> {
        self.read(|tx| series::points(tx, id, name, from_step, limit))
    }

    fn details(&self, ids: &[String]) -> Result<HashMap<String, Details>, RecordError> {
        self.read(|tx| series::details(tx, ids))
    }

    fn events(&self, id: Option<&str>, after: u64, limit: u32) -> Result<Vec<Event>, RecordError> {
        self.read(|tx| series::events(tx, id, after, limit))
    }

    fn newest_events(&self, id: &str, limit: u32) -> Result<Vec<Event>, RecordError> {
        self.read(|tx| series::newest_events(tx, id, limit))
    }

    fn events_of_kinds(&self, id: &str, kinds: &[&str]) -> Result<Vec<Event>, RecordError> {
        self.read(|tx| series::events_of_kinds(tx, id, kinds))
    }

    fn count_events(&self, id: &str, kind: &str) -> Result<u64, RecordError> {
        self.read(|tx| series::count_events(tx, id, kind))
    }

    fn put_schedule(&self, schedule: &Schedule) -> Result<(), RecordError> {
        schedule::check(schedule)?;
        self.write(|tx| schedule::put(tx, schedule))
    }

    fn schedules(&self) -> Result<Vec<Schedule>, RecordError> {
        self.read(schedule::list)
    }

    fn remove_schedule(&self, name: &str) -> Result<bool, RecordError> {
        self.write(|tx| schedule::remove(tx, name))
    }

    fn settle_schedule(&self, name: &str, due_ms: Millis, job: Option<&str>) -> Result<bool, RecordError> {
        self.write(|tx| schedule::settle(tx, name, due_ms, job))
    }

    fn newest_event(&self) -> Result<u64, RecordError> {
        self.read(series::newest_event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{EVENT_TEXT_BYTES_MAX, EVENTS_OF_KIND_MAX};

    #[test]
    fn fault_23_every_connection_syncs_every_commit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("saggar.db");
        // The first makes the database, the second finds it, the third follows a process that ended.
        let (first, second) = (SqliteRecords::open(&path).unwrap(), SqliteRecords::open(&path).unwrap());
        let check = |records: &SqliteRecords| {
            let connection = records.connection();
            let text = |name| connection.pragma_query_value(None, name, |row| row.get::<_, String>(0)).unwrap();
            let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
            assert_eq!((text("journal_mode").as_str(), number("synchronous"), number("foreign_keys")), ("wal", 2, 1));
        };
        check(&first);
        check(&second);
        drop((first, second));
        check(&SqliteRecords::open(&path).unwrap());
    }

    #[test]
    fn events_of_a_kind_are_bounded_and_their_texts_cut() {
        let directory = tempfile::tempdir().unwrap();
        let records = SqliteRecords::open(&directory.path().join("saggar.db")).unwrap();
        let (project, task, spec) = ("p".to_owned(), "t".to_owned(), "{}".to_owned());
        let id = records.submit(&NewJob { project, task, spec, ..NewJob::default() }, 1).unwrap().id;
        let many =
            |tx: &Transaction<'_>| (0..=EVENTS_OF_KIND_MAX).try_for_each(|_| series::event(tx, &id, "PHASE", "x", 1));
        records.write(many).unwrap();
        records.record_event(&id, "PHASE", &"é".repeat(EVENT_TEXT_BYTES_MAX), 1).unwrap();
        assert_eq!(records.count_events(&id, "PHASE").unwrap(), u64::from(EVENTS_OF_KIND_MAX));
        assert_eq!(records.count_events(&id, "SUBMITTED").unwrap(), 1);
        assert_eq!(records.newest_events(&id, 1).unwrap()[0].text.len(), EVENT_TEXT_BYTES_MAX);
    }
}
