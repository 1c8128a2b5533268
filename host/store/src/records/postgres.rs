//! Job records in PostgreSQL, which servers on several machines can reach.
//!
//! The queries are those of SQLite. What differs is here: connections, the schema, and what happens if a transaction or a
//! connection fails. Writes are `READ COMMITTED` transactions that lock what they decide about; reads see one state.
//!
//! # Repetition
//! - A transaction that ended because of another one (a deadlock, a serialization failure) is repeated.
//! - A connection that ended before COMMIT was sent left nothing behind: the transaction is repeated on a new connection.
//! - If the answer to COMMIT is lost, the write can be recorded or not. Each write changes the row of its connection in
//!   `write_markers` in the same transaction, so a new connection can tell: it waits until the old transaction has ended and
//!   reads the row. A recorded write returns the result that it had, any other one is repeated. So no write happens twice,
//!   also a claim or a submission without an idempotency key.
//! - All of that happens within `limits::POSTGRES_RETRY_MS_MAX`. After that the caller gets the error, which says so if the
//!   outcome is not known.

use std::time::{Duration, Instant};

use super::session::{RecordsEngine, SqlSession, TransactionError, TransactionResult};
use crate::error::RecordError;
use crate::limits::POSTGRES_RETRY_MS_MAX;

mod connection;
mod deferred_events;
mod failure;
mod inspection;
mod pool;
mod schema;
mod settings;
#[cfg(test)]
pub(super) mod tests;
mod tls;
mod values;

pub use inspection::{DatabaseInspection, inspect_database};

use connection::WriteMarker;
use failure::{FailureKind, PostgresError};
use pool::ConnectionPool;
use settings::ConnectionSettings;

/// The records in a database of PostgreSQL.
#[derive(Debug)]
pub(super) struct PostgresRecords {
    pool: ConnectionPool,
}

/// How an attempt of a transaction failed.
enum AttemptFailure<T> {
    /// Nothing was recorded.
    RolledBack(TransactionError),
    /// The answer to COMMIT was lost. The value is the result if it was recorded.
    Unanswered { value: T, marker: WriteMarker },
}

impl<T, E: Into<TransactionError>> From<E> for AttemptFailure<T> {
    fn from(error: E) -> AttemptFailure<T> {
        AttemptFailure::RolledBack(error.into())
    }
}

impl PostgresRecords {
    /// Connects to the database at a URL, and creates or migrates its schema.
    ///
    /// # Errors
    /// Returns `NewerSchema`; `Database`.
    pub(super) fn open(url: &str) -> Result<PostgresRecords, RecordError> {
        let settings = ConnectionSettings::parse(url)?;
        let database = settings.name.clone();
        let pool = ConnectionPool::new(settings).map_err(|source| RecordError::Database { database, source })?;
        inspection::check_support(&pool)?;
        let records = PostgresRecords { pool };
        schema::migrate(&records.pool)?;
        Ok(records)
    }

    /// Returns the database for messages, without its password.
    pub(super) fn database(&self) -> &str {
        &self.pool.settings().name
    }

    /// Runs a transaction until it is recorded, refused, or fails for good.
    fn repeat<T>(&self, attempt: impl Fn() -> Result<T, AttemptFailure<T>>) -> Result<T, RecordError> {
        let mut retry = RetrySchedule::new();
        loop {
            let error = match attempt() {
                Ok(value) => return Ok(value),
                Err(AttemptFailure::Unanswered { value, marker }) => match self.was_committed(&marker, &mut retry) {
                    Ok(true) => return Ok(value),
                    Ok(false) => continue,
                    Err(error) => return Err(error.into_record_error(self.database())),
                },
                Err(AttemptFailure::RolledBack(error)) => error,
            };
            if !failure::can_repeat(&error) || !retry.wait() {
                return Err(failure::record_error(error, self.database()));
            }
        }
    }

    fn attempt_read<T>(&self, body: &impl Fn(&dyn SqlSession) -> TransactionResult<T>) -> Result<T, AttemptFailure<T>> {
        let mut pooled = self.pool.take()?;
        let connection = pooled.get()?;
        connection.begin_read()?;
        let result = body(connection);
        if connection.run("ROLLBACK").is_ok() {
            pooled.put_back();
        }
        Ok(result?)
    }

    fn attempt_write<T>(
        &self,
        body: &impl Fn(&dyn SqlSession) -> TransactionResult<T>,
    ) -> Result<T, AttemptFailure<T>> {
        let mut pooled = self.pool.take()?;
        let connection = pooled.get()?;
        let marker = connection.begin_write()?;
        let body = |session: &dyn SqlSession| -> TransactionResult<T> {
            let value = body(session)?;
            session.record_deferred_events()?;
            Ok(value)
        };
        let value = match body(connection) {
            Ok(value) => value,
            Err(error) => {
                if connection.run("ROLLBACK").is_ok() {
                    pooled.put_back();
                }
                return Err(error.into());
            }
        };
        match connection.run("COMMIT") {
            Ok(()) => {
                pooled.put_back();
                Ok(value)
            }
            Err(error) if error.kind() == FailureKind::ConnectionLost => {
                Err(AttemptFailure::Unanswered { value, marker })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether a write whose answer was lost was recorded.
    fn was_committed(&self, marker: &WriteMarker, retry: &mut RetrySchedule) -> Result<bool, PostgresError> {
        loop {
            // Nothing else uses this connection, so its end is not mistaken for that of another transaction.
            match self.pool.open().and_then(|connection| connection.was_committed(marker)) {
                Ok(was_committed) => return Ok(was_committed),
                Err(error) => {
                    tracing::warn!(database = self.database(), %error, "cannot ask whether a write was recorded");
                    if error.kind() == FailureKind::Permanent || !retry.wait() {
                        return Err(PostgresError::OutcomeUnknown);
                    }
                }
            }
        }
    }
}

/// When a failed transaction is repeated: after growing delays, for a limited time.
struct RetrySchedule {
    deadline: Instant,
    delay: Duration,
}

impl RetrySchedule {
    const LONGEST: Duration = Duration::from_secs(1);

    fn new() -> RetrySchedule {
        let deadline = Instant::now() + Duration::from_millis(POSTGRES_RETRY_MS_MAX.into());
        RetrySchedule { deadline, delay: Duration::from_millis(10) }
    }

    /// Waits for the next attempt. Returns `false` if the time is over.
    fn wait(&mut self) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        std::thread::sleep(self.delay);
        self.delay = (self.delay * 2).min(RetrySchedule::LONGEST);
        true
    }
}

impl RecordsEngine for PostgresRecords {
    fn read<T>(&self, body: impl Fn(&dyn SqlSession) -> TransactionResult<T>) -> Result<T, RecordError> {
        self.repeat(|| self.attempt_read(&body))
    }

    fn write<T>(&self, body: impl Fn(&dyn SqlSession) -> TransactionResult<T>) -> Result<T, RecordError> {
        self.repeat(|| self.attempt_write(&body))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn free_log_space(&self) {
        // The server recycles its log.
    }

    fn return_disk_space(&self) -> Result<(), RecordError> {
        // The server's autovacuum makes the space of deleted rows usable again.
        Ok(())
    }
}
