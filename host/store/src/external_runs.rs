//! Runs of programs that are not jobs of this server, such as scripts that log with MLflow's client: their parameters,
//! tags and metrics, by experiment. One SQLite file, which the first write creates.
//!
//! Everything is bounded by named limits ([`limits`]). Reading is in [`read`], and what callers may see is elsewhere.

pub mod limits;
mod read;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use saggar_clock::UnixMillis;
use thiserror::Error;

use crate::durable;
use limits::{
    EXPERIMENTS_MAX, KEY_CHARS_MAX, METRIC_KEYS_MAX, NAME_CHARS_MAX, POINTS_MAX, RUNS_MAX, TEXT_BYTES_MAX, TEXTS_MAX,
    VALUE_CHARS_MAX,
};

/// The version of the schema that this build reads and writes.
pub(crate) const SCHEMA_VERSION: u64 = 1;

/// The reason why external runs cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExternalRunError {
    /// There is no such run.
    #[error("there is no external run {id}")]
    NoRun {
        /// The run that was named.
        id: String,
    },
    /// The experiment exists.
    #[error("the experiment {name} exists")]
    ExperimentExists {
        /// Its name.
        name: String,
    },
    /// A parameter has another value, and a parameter is never changed.
    #[error("the parameter {key} is {old:?} and cannot become {new:?}; log it as a tag or under another name")]
    ParameterChanged {
        /// The parameter's name.
        key: String,
        /// Its value.
        old: String,
        /// The refused value.
        new: String,
    },
    /// A text is empty or too long.
    #[error("{what}: {chars} characters, expected 1 to {chars_max}")]
    Length {
        /// What the text is.
        what: &'static str,
        /// Its length.
        chars: usize,
        /// The maximum.
        chars_max: usize,
    },
    /// A limit is reached.
    #[error("{what}: {count_max} are stored, which is the maximum")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// The maximum.
        count_max: u64,
    },
    /// The database cannot be used.
    #[error("{}: {source}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// The file cannot be created.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The status of an external run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalRunStatus {
    /// It runs.
    Running,
    /// It waits.
    Scheduled,
    /// It ended well.
    Finished,
    /// It failed.
    Failed,
    /// It was stopped.
    Killed,
}

impl ExternalRunStatus {
    /// Every status.
    pub const ALL: [ExternalRunStatus; 5] = [
        ExternalRunStatus::Running,
        ExternalRunStatus::Scheduled,
        ExternalRunStatus::Finished,
        ExternalRunStatus::Failed,
        ExternalRunStatus::Killed,
    ];

    /// Returns MLflow's name.
    pub const fn name(self) -> &'static str {
        match self {
            ExternalRunStatus::Running => "RUNNING",
            ExternalRunStatus::Scheduled => "SCHEDULED",
            ExternalRunStatus::Finished => "FINISHED",
            ExternalRunStatus::Failed => "FAILED",
            ExternalRunStatus::Killed => "KILLED",
        }
    }
}

/// An experiment that a client created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalExperiment {
    /// The name.
    pub name: String,
    /// When it was created.
    pub created_ms: UnixMillis,
    /// When it was last changed.
    pub updated_ms: UnixMillis,
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalPoint {
    /// The metric.
    pub key: String,
    /// The value, which can be infinite or NaN.
    pub value: f64,
    /// The step, which can be negative.
    pub step: i64,
    /// The time, in ms since 1970.
    pub at_ms: i64,
}

/// An external run.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalRun {
    /// 32 hexadecimal digits.
    pub id: String,
    /// The experiment.
    pub experiment: String,
    /// The name, which need not be unique.
    pub name: String,
    /// Who created it, as the client says.
    pub owner: String,
    /// The status.
    pub status: ExternalRunStatus,
    /// When it began.
    pub started_ms: i64,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// Whether it was deleted, which can be undone.
    pub is_deleted: bool,
    /// Parameters, by name.
    pub parameters: Vec<(String, String)>,
    /// Tags, by name.
    pub tags: Vec<(String, String)>,
    /// The last value of each metric: of the highest step, and of that the newest.
    pub latest: Vec<ExternalPoint>,
}

/// A run to be created.
#[derive(Clone, Debug, Default)]
pub struct NewExternalRun {
    /// The experiment.
    pub experiment: String,
    /// The name.
    pub name: String,
    /// Who creates it.
    pub owner: String,
    /// When it began.
    pub started_ms: i64,
    /// The first tags.
    pub tags: Vec<(String, String)>,
}

/// Changes of a run.
#[derive(Clone, Debug, Default)]
pub struct ExternalRunUpdate {
    /// Another name.
    pub name: Option<String>,
    /// Another status.
    pub status: Option<ExternalRunStatus>,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// Whether it is deleted.
    pub is_deleted: Option<bool>,
}

/// What a client logs at once; all or nothing is stored.
#[derive(Clone, Debug, Default)]
pub struct ExternalLog {
    /// Parameters.
    pub parameters: Vec<(String, String)>,
    /// Tags. A tag that exists gets another value.
    pub tags: Vec<(String, String)>,
    /// Values of metrics. One that is there already is not stored twice.
    pub points: Vec<ExternalPoint>,
}

/// The external runs of a state directory.
#[derive(Debug)]
pub struct ExternalRunStore {
    path: PathBuf,
    connection: Mutex<Option<Connection>>,
}

type StoreResult<T> = Result<T, ExternalRunError>;

impl ExternalRunStore {
    /// Returns the store in this file, which the first write creates.
    pub fn new(path: PathBuf) -> ExternalRunStore {
        ExternalRunStore { path, connection: Mutex::new(None) }
    }

    fn database_error(&self, source: rusqlite::Error) -> ExternalRunError {
        ExternalRunError::Database { path: self.path.clone(), source }
    }

    /// Returns the open database, or `None` if there is no file yet and `create` is false.
    fn open(&self, create: bool) -> StoreResult<Option<MappedMutexGuard<'_, Connection>>> {
        let mut held = self.connection.lock();
        if held.is_none() {
            if !create && !self.path.exists() {
                return Ok(None);
            }
            let io = |source| ExternalRunError::Io { path: self.path.clone(), source };
            durable::make_private_file(&self.path).map_err(io)?;
            *held = Some(open_database(&self.path).map_err(|error| self.database_error(error))?);
        }
        Ok(MutexGuard::try_map(held, Option::as_mut).ok())
    }

    fn write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T, WriteError>) -> StoreResult<T> {
        let Some(mut connection) = self.open(true)? else {
            return Err(self.database_error(rusqlite::Error::InvalidQuery));
        };
        match run_transaction(&mut connection, work) {
            Ok(done) => Ok(done),
            Err(WriteError::Refused(error)) => Err(error),
            Err(WriteError::Sql(error)) => Err(self.database_error(error)),
        }
    }

    /// Creates an experiment.
    ///
    /// # Errors
    /// `ExperimentExists`, `Length`, `TooMany`, `Database`.
    pub fn create_experiment(&self, name: &str, now_ms: UnixMillis) -> StoreResult<()> {
        check_length("experiment", name, NAME_CHARS_MAX)?;
        self.write(|transaction| {
            check_count(transaction, "SELECT count(*) FROM experiments", "experiments", EXPERIMENTS_MAX)?;
            let sql = "INSERT OR IGNORE INTO experiments VALUES (?1, ?2, ?2)";
            match transaction.execute(sql, params![name, signed(now_ms)])? {
                0 => Err(ExternalRunError::ExperimentExists { name: name.to_owned() }.into()),
                _ => Ok(()),
            }
        })
    }

    /// Creates a run and returns it.
    ///
    /// # Errors
    /// `Length`, `TooMany`, `Database`.
    pub fn create_run(&self, run: &NewExternalRun) -> StoreResult<ExternalRun> {
        check_length("experiment", &run.experiment, NAME_CHARS_MAX)?;
        check_length("run name", &run.name, NAME_CHARS_MAX)?;
        let owner: String = run.owner.chars().take(NAME_CHARS_MAX).collect();
        let id = durable::random_hex::<16>();
        self.write(|transaction| {
            check_count(transaction, "SELECT count(*) FROM runs", "external runs", RUNS_MAX)?;
            let sql =
                "INSERT INTO runs (id, experiment, name, owner, status, started_ms) VALUES (?, ?, ?, ?, 'RUNNING', ?)";
            transaction.execute(sql, params![id, run.experiment, run.name, owner, run.started_ms])?;
            let number = transaction.last_insert_rowid();
            run.tags.iter().try_for_each(|(key, value)| set_text(transaction, number, true, key, value))
        })?;
        self.run(&id)
    }

    /// Changes a run and returns it.
    ///
    /// # Errors
    /// `NoRun`, `Length`, `Database`.
    pub fn update_run(&self, id: &str, update: &ExternalRunUpdate) -> StoreResult<ExternalRun> {
        if let Some(name) = &update.name {
            check_length("run name", name, NAME_CHARS_MAX)?;
        }
        self.write(|transaction| {
            let number = run_number(transaction, id)?;
            let sql = "UPDATE runs SET name = coalesce(?2, name), status = coalesce(?3, status), \
                       ended_ms = coalesce(?4, ended_ms), is_deleted = coalesce(?5, is_deleted) WHERE number = ?1";
            let status = update.status.map(ExternalRunStatus::name);
            transaction.execute(sql, params![number, update.name, status, update.ended_ms, update.is_deleted])?;
            Ok(())
        })?;
        self.run(id)
    }

    /// Stores what a client logs.
    ///
    /// # Errors
    /// `NoRun`, `ParameterChanged`, `Length`, `TooMany`, `Database`.
    pub fn log(&self, id: &str, log: &ExternalLog) -> StoreResult<()> {
        self.write(|transaction| {
            let number = run_number(transaction, id)?;
            for (key, value) in &log.parameters {
                set_text(transaction, number, false, key, value)?;
            }
            for (key, value) in &log.tags {
                set_text(transaction, number, true, key, value)?;
            }
            add_points(transaction, number, &log.points)
        })
    }

    /// Removes a tag. Returns whether it existed.
    ///
    /// # Errors
    /// `NoRun`, `Database`.
    pub fn remove_tag(&self, id: &str, key: &str) -> StoreResult<bool> {
        self.write(|transaction| {
            let number = run_number(transaction, id)?;
            let sql = "DELETE FROM texts WHERE run = ? AND is_tag AND key = ?";
            Ok(transaction.execute(sql, params![number, key])? > 0)
        })
    }
}

/// The ways a write can end.
enum WriteError {
    Sql(rusqlite::Error),
    Refused(ExternalRunError),
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> WriteError {
        WriteError::Sql(error)
    }
}

impl From<ExternalRunError> for WriteError {
    fn from(error: ExternalRunError) -> WriteError {
        WriteError::Refused(error)
    }
}

fn run_transaction<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, WriteError>,
) -> Result<T, WriteError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

fn open_database(path: &std::path::Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if u64::from(version) > SCHEMA_VERSION {
        let reason =
            format!("it has format {version}, and this build reads up to {SCHEMA_VERSION}; use a newer saggar");
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ERROR);
        return Err(rusqlite::Error::SqliteFailure(code, Some(reason)));
    }
    if version == 0 {
        connection.execute_batch(&format!(
            "BEGIN;{}PRAGMA user_version = {SCHEMA_VERSION};COMMIT;",
            include_str!("external_runs/schema.sql")
        ))?;
    }
    Ok(connection)
}

fn signed(ms: UnixMillis) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

fn check_length(what: &'static str, text: &str, chars_max: usize) -> StoreResult<()> {
    match text.chars().count() {
        chars @ 1.. if chars <= chars_max => Ok(()),
        chars => Err(ExternalRunError::Length { what, chars, chars_max }),
    }
}

fn check_count(transaction: &Transaction<'_>, sql: &str, what: &'static str, count_max: u64) -> Result<(), WriteError> {
    let count: i64 = transaction.query_row(sql, [], |row| row.get(0))?;
    match u64::try_from(count).is_ok_and(|count| count < count_max) {
        true => Ok(()),
        false => Err(ExternalRunError::TooMany { what, count_max }.into()),
    }
}

fn run_number(transaction: &Transaction<'_>, id: &str) -> Result<i64, WriteError> {
    let found = transaction.query_row("SELECT number FROM runs WHERE id = ?", [id], |row| row.get(0)).optional()?;
    found.ok_or_else(|| ExternalRunError::NoRun { id: id.chars().take(80).collect() }.into())
}

/// Sets a tag, or a parameter, which cannot be changed.
fn set_text(transaction: &Transaction<'_>, run: i64, is_tag: bool, key: &str, value: &str) -> Result<(), WriteError> {
    let what = if is_tag { "tag" } else { "parameter" };
    check_length(what, key, KEY_CHARS_MAX)?;
    // An empty value is valid.
    if !value.is_empty() {
        check_length(what, value, VALUE_CHARS_MAX)?;
    }
    let sql = "SELECT value FROM texts WHERE run = ? AND is_tag = ? AND key = ?";
    let old: Option<String> = transaction.query_row(sql, params![run, is_tag, key], |row| row.get(0)).optional()?;
    match old {
        Some(old) if old == value => return Ok(()),
        Some(old) if !is_tag => {
            let (key, new) = (key.to_owned(), value.to_owned());
            return Err(ExternalRunError::ParameterChanged { key, old, new }.into());
        }
        Some(_) => {}
        None => {
            let sql = "SELECT count(*) FROM texts WHERE run = ? AND is_tag = ?";
            let count: i64 = transaction.query_row(sql, params![run, is_tag], |row| row.get(0))?;
            if u64::try_from(count).is_ok_and(|count| count >= TEXTS_MAX) {
                let what = if is_tag { "tags of the run" } else { "parameters of the run" };
                return Err(ExternalRunError::TooMany { what, count_max: TEXTS_MAX }.into());
            }
        }
    }
    transaction.execute("INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?)", params![run, is_tag, key, value])?;
    let sql = "SELECT sum(length(CAST(key AS BLOB)) + length(CAST(value AS BLOB))) FROM texts WHERE run = ?";
    let bytes: i64 = transaction.prepare_cached(sql)?.query_row([run], |row| row.get(0))?;
    if u64::try_from(bytes).is_ok_and(|bytes| bytes > TEXT_BYTES_MAX) {
        let what = "bytes of the run's parameters and tags";
        return Err(ExternalRunError::TooMany { what, count_max: TEXT_BYTES_MAX }.into());
    }
    Ok(())
}

fn add_points(transaction: &Transaction<'_>, run: i64, points: &[ExternalPoint]) -> Result<(), WriteError> {
    let mut added: i64 = 0;
    for ExternalPoint { key, value, step, at_ms } in points {
        check_length("metric", key, KEY_CHARS_MAX)?;
        let sql = "INSERT OR IGNORE INTO points VALUES (?, ?, ?, ?, ?)";
        // Equal bits, reinterpreted: every float is stored.
        let bits = i64::from_ne_bytes(value.to_bits().to_ne_bytes());
        added += i64::from(transaction.prepare_cached(sql)?.execute(params![run, key, step, at_ms, bits])? > 0);
    }
    if added == 0 {
        return Ok(());
    }
    let sql = "UPDATE runs SET points = points + ?2 WHERE number = ?1 RETURNING points";
    let count: i64 = transaction.query_row(sql, params![run, added], |row| row.get(0))?;
    if u64::try_from(count).is_ok_and(|count| count > POINTS_MAX) {
        return Err(ExternalRunError::TooMany { what: "values of the run's metrics", count_max: POINTS_MAX }.into());
    }
    let keys = read::metric_keys(transaction, run)?.len() as u64;
    if keys > METRIC_KEYS_MAX {
        return Err(ExternalRunError::TooMany { what: "metrics of the run", count_max: METRIC_KEYS_MAX }.into());
    }
    Ok(())
}
