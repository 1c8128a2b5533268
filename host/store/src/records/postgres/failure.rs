//! Errors of PostgreSQL, and what follows from them.

use std::io;

use tokio_postgres::error::SqlState;

use super::settings::error_chain;
use crate::error::{DatabaseOutage, RecordError, UnansweredTransaction};
use crate::records::session::TransactionError;

/// An error of a statement or a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostgresError {
    /// The server refused, or the connection ended.
    #[error("{}", error_chain(.0))]
    Client(#[from] tokio_postgres::Error),
    /// All connections stayed in use.
    #[error("no connection became free in {0} s; slow statements or a lock of another client hold them")]
    Busy(u32),
    /// COMMIT was not answered, and the database could not be asked about it.
    #[error(
        "the connection ended while a change was being recorded, and it is not known whether it was; look before you repeat it"
    )]
    OutcomeUnknown,
    /// Something that does not happen.
    #[error("{0}")]
    Internal(&'static str),
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The transaction was rolled back because of another one: repeat it.
    Conflict,
    /// The server cannot be reached, or ended the connection: connect again.
    ConnectionLost,
    /// Repeating does not help.
    Permanent,
}

impl PostgresError {
    /// Returns what to do after this error.
    pub(super) fn kind(&self) -> FailureKind {
        let PostgresError::Client(error) = self else { return FailureKind::Permanent };
        let Some(code) = error.code() else {
            let mut cause = std::error::Error::source(error);
            while let Some(inner) = cause {
                if inner.is::<io::Error>() {
                    return FailureKind::ConnectionLost;
                }
                cause = inner.source();
            }
            return if error.is_closed() { FailureKind::ConnectionLost } else { FailureKind::Permanent };
        };
        match *code {
            SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => FailureKind::Conflict,
            SqlState::ADMIN_SHUTDOWN
            | SqlState::CRASH_SHUTDOWN
            | SqlState::CANNOT_CONNECT_NOW
            | SqlState::TOO_MANY_CONNECTIONS
            | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => FailureKind::ConnectionLost,
            // Class 08: connection exceptions.
            _ if code.code().starts_with("08") => FailureKind::ConnectionLost,
            _ => FailureKind::Permanent,
        }
    }

    /// Returns what is known if the server cannot be reached, is too busy, or has no space; `None` for any other error.
    fn outage(&self) -> Option<DatabaseOutage> {
        match self {
            PostgresError::OutcomeUnknown => Some(DatabaseOutage::OutcomeUnknown),
            PostgresError::Busy(_) => Some(DatabaseOutage::NothingRecorded),
            PostgresError::Client(error) if error.code() == Some(&SqlState::DISK_FULL) => {
                Some(DatabaseOutage::DiskFull)
            }
            error => (error.kind() == FailureKind::ConnectionLost).then_some(DatabaseOutage::NothingRecorded),
        }
    }

    /// Returns the error of the records. A full disk becomes an I/O error of that kind.
    pub(super) fn into_record_error(self, database: &str) -> RecordError {
        let source: Box<dyn std::error::Error + Send + Sync> = match self.outage() {
            Some(outage @ DatabaseOutage::DiskFull) => {
                let source = io::Error::new(io::ErrorKind::StorageFull, self).into();
                UnansweredTransaction { outage, source }.into()
            }
            Some(outage) => UnansweredTransaction { outage, source: self.into() }.into(),
            None => self.into(),
        };
        RecordError::Database { database: database.to_owned(), source }
    }
}

/// Returns the error of the records for a transaction that failed for good.
pub(super) fn record_error(error: TransactionError, database: &str) -> RecordError {
    match error {
        TransactionError::Record(error) => error,
        TransactionError::Engine(error) => match error.downcast::<PostgresError>() {
            Ok(error) => error.into_record_error(database),
            Err(source) => RecordError::Database { database: database.to_owned(), source },
        },
    }
}

/// Returns whether a failed transaction can succeed when it is repeated.
pub(super) fn can_repeat(error: &TransactionError) -> bool {
    let TransactionError::Engine(error) = error else { return false };
    error.downcast_ref::<PostgresError>().is_some_and(|error| error.kind() != FailureKind::Permanent)
}

impl From<PostgresError> for TransactionError {
    fn from(error: PostgresError) -> TransactionError {
        TransactionError::Engine(error.into())
    }
}
