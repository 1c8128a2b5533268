//! What can go wrong, an enum for each area: data, with what was expected and how to mend it.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::digest::Digest;

mod dataset;
pub use dataset::DatasetError;

/// Whether an error, or what caused it, is that the disk or the user's share of it is full.
pub fn is_disk_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let is_full = match (error.downcast_ref::<io::Error>(), error.downcast_ref::<rusqlite::Error>()) {
            (Some(error), _) => matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded),
            (_, Some(error)) => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            (None, None) => false,
        };
        if is_full {
            return true;
        }
        next = error.source();
    }
    false
}

/// Failures of files and objects.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// The object store refused.
    #[error("object {name}: {source}")]
    Object {
        /// The object, or the prefix of a listing.
        name: String,
        /// Its reason.
        source: object_store::Error,
    },
    /// No such object.
    #[error("object {name} is missing")]
    NotFound {
        /// The object.
        name: String,
    },
    /// An object is not what was written.
    #[error("object {name} is damaged: {size} bytes with SHA-256 {found}, expected {expected}")]
    Damaged {
        /// The object.
        name: String,
        /// What its content should have.
        expected: Digest,
        /// What its content has.
        found: Digest,
        /// Bytes found.
        size: u64,
    },
    /// A name that no object can have.
    #[error("`{name}` cannot be an object's name: parts between `/` must not be empty, `.` or `..`")]
    BadName {
        /// The name.
        name: String,
    },
    /// Another server uses the state directory.
    #[error(
        "{} is in use by another server (process {process}); stop it, or give this one another \
         directory with SAGGAR_HOME",
        home.display()
    )]
    HomeInUse {
        /// The state directory.
        home: PathBuf,
        /// The number of the process that holds it, as that process wrote it; empty if unknown.
        process: String,
    },
    /// A part of the state directory is to lie elsewhere, and is not there.
    #[error(
        "{} is a link to {}, where there is no directory: make it, or bring back the disk that it is on",
        place.display(),
        target.display()
    )]
    LinkToNothing {
        /// The link.
        place: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// What is kept may not grow so far.
    #[error(
        "quota-exceeded: {wanted} bytes more would not fit: {used} of {limit} are used; raise --storage-quota, or make \
         room with `saggar gc`"
    )]
    QuotaExceeded {
        /// The most bytes that may be kept.
        limit: u64,
        /// Bytes kept.
        used: u64,
        /// Bytes to be added.
        wanted: u64,
    },
    /// The runtime shut down in the middle of it.
    #[error("object {name}: the runtime is shutting down")]
    Interrupted {
        /// The object.
        name: String,
    },
}

impl StoreError {
    /// Names the path of an I/O error: `.map_err(StoreError::io(path))`.
    pub(crate) fn io(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> StoreError {
        move |source| StoreError::Io { path: path.as_ref().to_owned(), source }
    }

    /// Names the object of a store's error.
    pub(crate) fn object(name: impl Display) -> impl FnOnce(object_store::Error) -> StoreError {
        move |source| match source {
            object_store::Error::NotFound { .. } => StoreError::NotFound { name: name.to_string() },
            object_store::Error::Generic { store, source } => match source.downcast::<io::Error>() {
                Ok(source) => StoreError::Io { path: name.to_string().into(), source: *source },
                Err(source) => {
                    let source = object_store::Error::Generic { store, source };
                    StoreError::Object { name: name.to_string(), source }
                }
            },
            source => StoreError::Object { name: name.to_string(), source },
        }
    }
}

/// Failures of checkpoints.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The files or objects below failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A newer attempt owns the job: stop.
    #[error("job {job}: attempt with epoch {epoch} was replaced by one with epoch {newest}")]
    Fenced {
        /// The job.
        job: String,
        /// The writer's epoch.
        epoch: u64,
        /// The newest epoch.
        newest: u64,
    },
    /// This attempt saved something else at this step before.
    #[error("{file} exists with other content: a step is saved once in an attempt")]
    AlreadySaved {
        /// The manifest.
        file: String,
    },
    /// No such checkpoint, or none any more.
    #[error("job {job} has no checkpoint{which}")]
    NotFound {
        /// The job.
        job: String,
        /// What it was asked for: ` of step 1200`; empty where any would do.
        which: String,
    },
    /// The checkpoint that was asked for by its step is not as it was written.
    #[error("{file} cannot be used: {reason}")]
    Damaged {
        /// The manifest.
        file: String,
        /// What is wrong, naming the damaged object.
        reason: String,
    },
    /// Written by another version of this program.
    #[error(
        "{file} has checkpoint format {found}, and this build reads formats up to {expected}; resume with \
         the build that wrote it, or start the job again"
    )]
    OtherFormat {
        /// The manifest.
        file: String,
        /// Its format.
        found: u64,
        /// Ours.
        expected: u64,
    },
    /// Written by another plugin.
    #[error(
        "{file} was written by plugin {found}, and this job runs plugin {expected}; start a new job \
         for the changed plugin"
    )]
    OtherPlugin {
        /// The manifest.
        file: String,
        /// Digest of the plugin that wrote it.
        found: String,
        /// Digest of the plugin that runs.
        expected: String,
    },
    /// A job's identifier that cannot be part of a path.
    #[error("`{job}` cannot be a job's identifier: letters, digits, `-` and `_` only")]
    BadJob {
        /// The identifier.
        job: String,
    },
    /// A variable whose bytes are not those of its descriptor.
    #[error("variable {name}: {descriptor} takes {expected} bytes, not {found}")]
    WrongSize {
        /// The variable.
        name: String,
        /// Its descriptor.
        descriptor: String,
        /// Bytes it takes.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// Two variables of one name.
    #[error("two variables are called `{name}`")]
    DuplicateName {
        /// The name.
        name: String,
    },
}

/// Failures of the model registry.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The files below failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A name that cannot be a directory's on every system.
    #[error(
        "`{name}` cannot be a name: 1 to 63 lower-case letters, digits, `.`, `_`, `-`, beginning \
         with a letter or digit"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// No such model or version.
    #[error("{} does not exist", dir.display())]
    NotFound {
        /// Where it would lie.
        dir: PathBuf,
    },
    /// A version that is not all there, or not as published. Also what a half-finished copy is.
    #[error("{}: {problem}", file.display())]
    Incomplete {
        /// The file, or the directory.
        file: PathBuf,
        /// What is wrong with it.
        problem: FileProblem,
    },
    /// Weights that no file can hold.
    #[error("weights cannot be written: {reason}")]
    Weights {
        /// Why.
        reason: String,
    },
}

/// What is wrong with a file of a model or dataset version.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// It is not there.
    #[error("missing; copy it, and manifest.json last")]
    Missing,
    /// It is shorter or longer.
    #[error("has {found} bytes, and manifest.json says {expected}; is the copy finished?")]
    WrongSize {
        /// Bytes by the manifest.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// It holds other bytes.
    #[error("has SHA-256 {found}, and manifest.json says {expected}; copy it again")]
    WrongDigest {
        /// Digest by the manifest.
        expected: Digest,
        /// Digest found.
        found: Digest,
    },
    /// It cannot be understood.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// Why.
        reason: String,
    },
    /// Of another version of the format.
    #[error("has format {found}, and this build reads format {expected}")]
    OtherFormat {
        /// Its format.
        found: u64,
        /// Ours.
        expected: u64,
    },
}

/// Failures of job records.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The database refused.
    #[error("{}: {source}", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// Its reason.
        source: rusqlite::Error,
    },
    /// The database's file cannot be made or opened.
    #[error("{}: {source}", path.display())]
    File {
        /// The database.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// The database was made by a newer build.
    #[error(
        "{} has schema {found}, and this build knows schemas up to {newest}; use the newer build",
        path.display()
    )]
    NewerSchema {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest that we know.
        newest: i64,
    },
    /// No more jobs may wait.
    #[error("{queued} jobs wait already, and at most {max} can; submit again when some have run")]
    QueueFull {
        /// How many wait.
        queued: u64,
        /// How many can.
        max: u64,
    },
    /// No such job.
    #[error("there is no job {job}")]
    NoSuchJob {
        /// The name or identifier asked for.
        job: String,
    },
    /// The writer's lease is over: another attempt, or the server, owns the job now. Stop.
    #[error("job {job}: lease with epoch {epoch} is over; the job is at epoch {newest}")]
    Fenced {
        /// The job.
        job: String,
        /// The writer's epoch.
        epoch: u64,
        /// The job's epoch.
        newest: u64,
    },
    /// The job is over.
    #[error("job {job} is {state} already")]
    Finished {
        /// The job.
        job: String,
        /// How it ended.
        state: crate::records::JobState,
    },
    /// A value that cannot be recorded.
    #[error("{field}: `{value}` {expected}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// Its value, shortened.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}
