//! Errors of job records.

use thiserror::Error;

/// Errors of job records.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The engine reported an error, or its database cannot be opened.
    #[error("{database}: {source}")]
    Database {
        /// The database, such as its path.
        database: String,
        /// The engine's error. It is, or has as a cause, an [`std::io::Error`] of the kind `StorageFull` if the disk is full.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No engine has this URL scheme.
    #[error(
        "{scheme}://: unknown kind of job records; expected sqlite:///absolute/path, the path of a SQLite file, or postgres://USER@HOST/DATABASE"
    )]
    UnknownEngine {
        /// The scheme. The rest of the URL can contain a password.
        scheme: String,
    },
    /// A newer build created the database.
    #[error("{database} has schema {found}, and this build knows schemas up to {newest}; use the newer build")]
    NewerSchema {
        /// The database, such as its path.
        database: String,
        /// The schema version of the database.
        found: i64,
        /// The newest schema version that this build knows.
        newest: i64,
    },
    /// A migration into the database was interrupted.
    #[error("{database} has an incomplete copy of a state: run the `saggar migrate` that was interrupted again")]
    IncompleteMigration {
        /// The database.
        database: String,
    },
    /// The queue is full.
    #[error("{queued} jobs wait already, and at most {max} can; submit again when some have run")]
    QueueFull {
        /// Number of queued jobs.
        queued: u64,
        /// The maximum.
        max: u64,
    },
    /// The job does not exist.
    #[error("there is no job {job}")]
    NoSuchJob {
        /// The name or identifier.
        job: String,
    },
    /// The pipeline run does not exist.
    #[error("there is no pipeline run {run}")]
    NoSuchRun {
        /// The name or identifier.
        run: String,
    },
    /// Too many pipeline runs are not over.
    #[error("{running} pipeline runs are not over, and at most {max} can be; start it again when some have ended")]
    TooManyRuns {
        /// Number of runs that are not over.
        running: u64,
        /// The maximum.
        max: u64,
    },
    /// The writer's lease has ended: another attempt, or the server, owns the job now. The writer must stop.
    #[error("job {job}: lease with epoch {epoch} is over; the job is at epoch {newest}, claimed by {owner}")]
    Fenced {
        /// The job.
        job: String,
        /// The writer's epoch.
        epoch: u64,
        /// The job's epoch.
        newest: u64,
        /// The newest claim's server, for people.
        owner: String,
    },
    /// The job has already finished.
    #[error("job {job} is {state} already")]
    Finished {
        /// The job.
        job: String,
        /// Its final state.
        state: crate::records::JobState,
    },
    /// A value that is not valid.
    #[error("{field}: `{value}` {expected}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// Its value, shortened.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
}
