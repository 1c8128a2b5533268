//! Job records in SQLite: one file, write-ahead log, every commit synced.
//!
//! Several processes and threads can have it open. Writes are `BEGIN IMMEDIATE` transactions, so a decision and the
//! write that follows from it are atomic. SQLite's types are private to this module.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params_from_iter};
use saggar_clock::{Clock, SystemClock};

use super::session::{
    LeaseClock, NewEvent, RecordLock, RecordsEngine, SqlDialect, SqlRow, SqlSession, SqlValue, TransactionError,
    TransactionResult, column_error,
};
use crate::durable;
use crate::error::RecordError;
use crate::limits::RECORDS_BUSY_MS;

#[cfg(test)]
mod tests;
mod vacuum;

/// The migrations of the schema, oldest first. Each upgrades a database from the previous version.
pub(super) const SCHEMAS: [&str; 20] = [
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
    include_str!("sqlite/leases.sql"),
    include_str!("sqlite/documents.sql"),
    include_str!("sqlite/groups.sql"),
    include_str!("sqlite/log_chunks.sql"),
    include_str!("sqlite/workers.sql"),
    include_str!("sqlite/shared_rows.sql"),
    include_str!("sqlite/attempt_hosts.sql"),
    include_str!("sqlite/scheduling_order.sql"),
];

/// Prepared statements of a connection. All queries together are fewer.
const STATEMENTS_CACHED: usize = 128;

/// The records in one SQLite file.
#[derive(Debug)]
pub(super) struct SqliteRecords {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// The clock of leases.
    clock: Arc<dyn Clock>,
}

/// An open transaction.
struct SqliteSession<'a> {
    transaction: Transaction<'a>,
    clock: &'a dyn Clock,
}

impl From<rusqlite::Error> for TransactionError {
    fn from(error: rusqlite::Error) -> TransactionError {
        TransactionError::Engine(error.into())
    }
}

/// Returns SQLite's error as one that names no engine. A full disk becomes an I/O error of that kind.
fn database_error(path: &Path, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> RecordError {
    let error = error.into();
    let code = error.downcast_ref::<rusqlite::Error>().and_then(rusqlite::Error::sqlite_error_code);
    let is_disk_full = code == Some(rusqlite::ErrorCode::DiskFull);
    let source = if is_disk_full { io::Error::new(io::ErrorKind::StorageFull, error).into() } else { error };
    RecordError::Database { database: path.display().to_string(), source }
}

impl ToSql for SqlValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            SqlValue::Null => ValueRef::Null,
            SqlValue::Bool(value) => ValueRef::Integer(value.into()),
            SqlValue::Integer(value) => ValueRef::Integer(value),
            SqlValue::Real(value) => ValueRef::Real(value),
            SqlValue::Text(value) => ValueRef::Text(value.as_bytes()),
        }))
    }
}

impl SqlRow for Row<'_> {
    fn value(&self, column: usize) -> TransactionResult<SqlValue<'_>> {
        Ok(match self.get_ref(column)? {
            ValueRef::Null => SqlValue::Null,
            ValueRef::Integer(value) => SqlValue::Integer(value),
            ValueRef::Real(value) => SqlValue::Real(value),
            ValueRef::Text(text) => SqlValue::Text(str::from_utf8(text).map_err(|error| column_error(column, error))?),
            ValueRef::Blob(_) => return Err(column_error(column, "unexpected bytes")),
        })
    }
}

impl SqlSession for SqliteSession<'_> {
    fn execute(&self, sql: &str, params: &[SqlValue<'_>]) -> TransactionResult<usize> {
        Ok(self.transaction.prepare_cached(sql)?.execute(params_from_iter(params))?)
    }

    fn query(
        &self,
        sql: &str,
        params: &[SqlValue<'_>],
        each: &mut dyn FnMut(&dyn SqlRow) -> TransactionResult<()>,
    ) -> TransactionResult<()> {
        let mut statement = self.transaction.prepare_cached(sql)?;
        let mut rows = statement.query(params_from_iter(params))?;
        while let Some(row) = rows.next()? {
            each(row)?;
        }
        Ok(())
    }

    fn lock(&self, _lock: RecordLock<'_>) -> TransactionResult<()> {
        // Immediate transactions are serial.
        Ok(())
    }

    fn defer_event(&self, _event: &NewEvent<'_>) -> bool {
        // Events become visible in the order of their numbers, because writes are serial.
        false
    }

    fn record_deferred_events(&self) -> TransactionResult<()> {
        Ok(())
    }

    fn lease_clock(&self) -> TransactionResult<LeaseClock> {
        Ok(LeaseClock { now_ms: self.clock.now_ms(), started_ms: 0 })
    }

    fn dialect(&self) -> SqlDialect {
        SqlDialect::Sqlite
    }
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

    /// Ends leases by this clock.
    #[cfg(test)]
    pub(super) fn with_clock(mut self, clock: Arc<dyn Clock>) -> SqliteRecords {
        self.clock = clock;
        self
    }

    /// Opens an empty database in memory.
    #[cfg(test)]
    pub(super) fn open_in_memory() -> SqliteRecords {
        SqliteRecords::from_connection(Path::new(":memory:"), Connection::open_in_memory())
            .expect("memory is available")
    }

    fn from_connection(path: &Path, opened: rusqlite::Result<Connection>) -> Result<SqliteRecords, RecordError> {
        let connection = opened.and_then(|connection| {
            connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
            connection.busy_timeout(Duration::from_millis(RECORDS_BUSY_MS.into()))?;
            vacuum::enable_incremental_vacuum(&connection)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "foreign_keys", true)?;
            Ok(connection)
        });
        let connection = connection.map_err(|error| database_error(path, error))?;
        let records =
            SqliteRecords { path: path.to_owned(), connection: Mutex::new(connection), clock: Arc::new(SystemClock) };
        records.transaction(TransactionBehavior::Immediate, |session| records.migrate(&session.transaction))?;
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

    fn transaction<T>(
        &self,
        behaviour: TransactionBehavior,
        body: impl FnOnce(&SqliteSession<'_>) -> TransactionResult<T>,
    ) -> Result<T, RecordError> {
        let mut connection = self.connection();
        let run = || -> TransactionResult<T> {
            let transaction = connection.transaction_with_behavior(behaviour)?;
            let session = SqliteSession { transaction, clock: &*self.clock };
            let value = body(&session)?;
            session.transaction.commit()?;
            Ok(value)
        };
        run().map_err(|failure| match failure {
            TransactionError::Engine(error) => database_error(&self.path, error),
            TransactionError::Record(error) => error,
        })
    }
}

impl RecordsEngine for SqliteRecords {
    fn read<T>(&self, body: impl Fn(&dyn SqlSession) -> TransactionResult<T>) -> Result<T, RecordError> {
        self.transaction(TransactionBehavior::Deferred, |tx| body(tx))
    }

    fn write<T>(&self, body: impl Fn(&dyn SqlSession) -> TransactionResult<T>) -> Result<T, RecordError> {
        self.transaction(TransactionBehavior::Immediate, |tx| body(tx))
    }

    fn is_shared(&self) -> bool {
        // One server holds the lock of the state directory.
        false
    }

    fn free_log_space(&self) {
        // A log that cannot be truncated now is truncated after the next removal.
        let _ = vacuum::truncate_log(&self.connection());
    }

    fn return_disk_space(&self) -> Result<(), RecordError> {
        let given = vacuum::reclaim(&self.connection(), &self.path);
        given.map_err(|error| database_error(&self.path, error))
    }
}
