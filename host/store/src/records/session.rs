//! What the queries need of a database engine: transactions, values, rows and locks.
//!
//! The queries are written once, in `queries`, for [`SqlSession`]. An engine implements [`RecordsEngine`] and gets
//! `JobRecords` from them. SQL is written with parameters `?1`, `?2`; an engine with another notation translates it.

use saggar_clock::UnixMillis;
use serde::Serialize;

use crate::error::RecordError;

/// A database engine: runs transactions.
pub(super) trait RecordsEngine: std::fmt::Debug + Send + Sync {
    /// Runs a body that only reads, on one state of the database. It can be repeated.
    ///
    /// # Errors
    /// Returns what the body returned; `Database`.
    fn read<T>(&self, body: impl Fn(&dyn SqlSession) -> TransactionResult<T>) -> Result<T, RecordError>;

    /// Runs a body as one transaction, which is recorded once or not at all. The body can be repeated after it was
    /// rolled back, so it has no other effects.
    ///
    /// # Errors
    /// Returns what the body returned; `Database`.
    fn write<T>(&self, body: impl Fn(&dyn SqlSession) -> TransactionResult<T>) -> Result<T, RecordError>;

    /// Returns whether several servers can use the records.
    fn is_shared(&self) -> bool;

    /// Frees the disk space that a batch of a removal used, if that is quick. A failure has no consequences.
    fn free_log_space(&self);

    /// Returns the disk space of deleted records to the file system.
    ///
    /// # Errors
    /// Returns `Database`.
    fn return_disk_space(&self) -> Result<(), RecordError>;
}

/// A transaction that is open.
pub(super) trait SqlSession {
    /// Runs a statement and returns the number of changed rows.
    fn execute(&self, sql: &str, params: &[SqlValue<'_>]) -> TransactionResult<usize>;

    /// Runs a query and passes each row to `each`, which does not use the session.
    fn query(
        &self,
        sql: &str,
        params: &[SqlValue<'_>],
        each: &mut dyn FnMut(&dyn SqlRow) -> TransactionResult<()>,
    ) -> TransactionResult<()>;

    /// Waits until no other transaction holds the lock, and holds it until this one ends. Only for writes. An engine
    /// whose writes are serial does nothing.
    fn lock(&self, lock: RecordLock<'_>) -> TransactionResult<()>;

    /// Keeps an event until the end of the transaction, and returns whether it does so: its number is taken under a lock that
    /// all writes need, so it is held for a short time. Otherwise the caller records it.
    fn defer_event(&self, event: &NewEvent<'_>) -> bool;

    /// Records the events that wait for the end of the transaction. Does nothing if no event waits.
    fn record_deferred_events(&self) -> TransactionResult<()>;

    /// Returns the clock by which leases end. It continues during the transaction.
    fn lease_clock(&self) -> TransactionResult<LeaseClock>;

    /// Returns the dialect, for the queries that need a different text in each.
    fn dialect(&self) -> SqlDialect;
}

/// An event of a job that is to be recorded.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct NewEvent<'a> {
    pub(super) job: &'a str,
    pub(super) at_ms: UnixMillis,
    pub(super) kind: &'a str,
    pub(super) text: &'a str,
}

/// The clock of leases, in milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseClock {
    pub(super) now_ms: u64,
    /// When the database's server started; before that, no lease could be renewed. 0 if it is this process.
    pub(super) started_ms: u64,
}

/// A dialect of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SqlDialect {
    Sqlite,
    Postgres,
}

/// What a transaction decides about. A transaction takes its locks in this order, so two never wait for each other.
#[derive(Clone, Copy, Debug)]
pub(super) enum RecordLock<'a> {
    /// Which queued job starts.
    Claim,
    /// A new job, sweep, run or schedule: its number, its idempotency key, and the limit of how many there can be.
    Creation,
    /// The records of the pipeline run with this identifier.
    PipelineRun(&'a str),
}

impl dyn SqlSession + '_ {
    /// Returns all rows of a query.
    pub(super) fn query_all<T>(
        &self,
        sql: &str,
        params: &[SqlValue<'_>],
        convert: impl Fn(&dyn SqlRow) -> TransactionResult<T>,
    ) -> TransactionResult<Vec<T>> {
        let mut values = Vec::new();
        self.query(sql, params, &mut |row| {
            values.push(convert(row)?);
            Ok(())
        })?;
        Ok(values)
    }

    /// Returns the first row of a query, or `None`.
    pub(super) fn query_optional<T>(
        &self,
        sql: &str,
        params: &[SqlValue<'_>],
        convert: impl Fn(&dyn SqlRow) -> TransactionResult<T>,
    ) -> TransactionResult<Option<T>> {
        let mut first = None;
        self.query(sql, params, &mut |row| {
            if first.is_none() {
                first = Some(convert(row)?);
            }
            Ok(())
        })?;
        Ok(first)
    }

    /// Returns the first row of a query that always has one.
    pub(super) fn query_one<T>(
        &self,
        sql: &str,
        params: &[SqlValue<'_>],
        convert: impl Fn(&dyn SqlRow) -> TransactionResult<T>,
    ) -> TransactionResult<T> {
        let first = self.query_optional(sql, params, convert)?;
        first.ok_or_else(|| TransactionError::Engine("a query returned no row".into()))
    }
}

/// The ways a transaction's body can end, before the name of the database is added.
#[derive(Debug)]
pub(super) enum TransactionError {
    Engine(Box<dyn std::error::Error + Send + Sync>),
    Record(RecordError),
}

impl From<RecordError> for TransactionError {
    fn from(error: RecordError) -> TransactionError {
        TransactionError::Record(error)
    }
}

pub(super) type TransactionResult<T> = Result<T, TransactionError>;

/// Returns the error of a column whose value is not what was expected.
pub(super) fn column_error(column: usize, error: impl std::fmt::Display) -> TransactionError {
    TransactionError::Engine(format!("column {column} of a row is not valid: {error}").into())
}

/// A value of a parameter or a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SqlValue<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    /// Never NaN, for which NULL is stored.
    Real(f64),
    Text(&'a str),
}

/// A row of a result.
pub(super) trait SqlRow {
    /// Returns the value of a column, counted from 0.
    fn value(&self, column: usize) -> TransactionResult<SqlValue<'_>>;
}

impl dyn SqlRow + '_ {
    /// Returns the value of a column as a type.
    pub(super) fn get<T: FromSqlValue>(&self, column: usize) -> TransactionResult<T> {
        let value = self.value(column)?;
        T::from_sql_value(value).ok_or_else(|| column_error(column, format_args!("unexpected {value:.80?}")))
    }
}

/// A type of parameters.
pub(super) trait ToSqlValue {
    fn to_sql_value(&self) -> SqlValue<'_>;
}

/// A type of columns.
pub(super) trait FromSqlValue: Sized {
    /// Returns `None` if the value is not of this type.
    fn from_sql_value(value: SqlValue<'_>) -> Option<Self>;
}

/// Makes the parameters of a statement from values or references to them.
macro_rules! params {
    ($($param:expr),* $(,)?) => {
        &[$($crate::records::session::ToSqlValue::to_sql_value(&$param)),*]
    };
}
pub(super) use params;

impl<T: ToSqlValue + ?Sized> ToSqlValue for &T {
    fn to_sql_value(&self) -> SqlValue<'_> {
        (**self).to_sql_value()
    }
}

impl<T: ToSqlValue> ToSqlValue for Option<T> {
    fn to_sql_value(&self) -> SqlValue<'_> {
        self.as_ref().map_or(SqlValue::Null, T::to_sql_value)
    }
}

impl<T: FromSqlValue> FromSqlValue for Option<T> {
    fn from_sql_value(value: SqlValue<'_>) -> Option<Option<T>> {
        if value == SqlValue::Null { Some(None) } else { T::from_sql_value(value).map(Some) }
    }
}

impl ToSqlValue for str {
    fn to_sql_value(&self) -> SqlValue<'_> {
        SqlValue::Text(self)
    }
}

impl ToSqlValue for String {
    fn to_sql_value(&self) -> SqlValue<'_> {
        SqlValue::Text(self)
    }
}

impl FromSqlValue for String {
    fn from_sql_value(value: SqlValue<'_>) -> Option<String> {
        if let SqlValue::Text(text) = value { Some(text.to_owned()) } else { None }
    }
}

impl ToSqlValue for bool {
    fn to_sql_value(&self) -> SqlValue<'_> {
        SqlValue::Bool(*self)
    }
}

impl FromSqlValue for bool {
    fn from_sql_value(value: SqlValue<'_>) -> Option<bool> {
        match value {
            SqlValue::Bool(value) => Some(value),
            // SQLite has no booleans.
            SqlValue::Integer(value) => Some(value != 0),
            _ => None,
        }
    }
}

impl ToSqlValue for f64 {
    fn to_sql_value(&self) -> SqlValue<'_> {
        if self.is_nan() { SqlValue::Null } else { SqlValue::Real(*self) }
    }
}

impl FromSqlValue for f64 {
    fn from_sql_value(value: SqlValue<'_>) -> Option<f64> {
        if let SqlValue::Real(value) = value { Some(value) } else { None }
    }
}

/// Databases have signed integers: larger numbers are stored as their maximum.
impl ToSqlValue for u64 {
    fn to_sql_value(&self) -> SqlValue<'_> {
        SqlValue::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
    }
}

impl FromSqlValue for u64 {
    fn from_sql_value(value: SqlValue<'_>) -> Option<u64> {
        i64::from_sql_value(value).map(|value| u64::try_from(value).unwrap_or(0))
    }
}

macro_rules! integers {
    ($($integer:ident)*) => {
        $(impl ToSqlValue for $integer {
            fn to_sql_value(&self) -> SqlValue<'_> {
                SqlValue::Integer((*self).into())
            }
        }

        impl FromSqlValue for $integer {
            fn from_sql_value(value: SqlValue<'_>) -> Option<$integer> {
                if let SqlValue::Integer(value) = value { value.try_into().ok() } else { None }
            }
        })*
    };
}

integers!(i32 i64 u32);
