//! Error types, one enum per area. Each carries data, what was expected, and how to fix it.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::digest::Digest;

mod bundle;
mod dataset;
mod record;
pub use bundle::BundleError;
pub use dataset::DatasetError;
pub use record::RecordError;

/// Returns whether the error or one of its causes means that the disk or the user's disk quota is full.
pub fn is_disk_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Returns whether the error or one of its causes means that a store of objects on another machine did not answer a
/// request, or refused it.
pub fn is_store_unavailable(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<RemoteFailure>() {
            return true;
        }
        next = error.source();
    }
    false
}

/// Returns why the error or one of its causes means that a database on another machine did not answer, or `None`.
pub fn database_outage(error: &(dyn std::error::Error + 'static)) -> Option<DatabaseOutage> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(failure) = error.downcast_ref::<UnansweredTransaction>() {
            return Some(failure.outage);
        }
        next = error.source();
    }
    None
}

/// What is known after a database on another machine did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseOutage {
    /// Nothing was recorded.
    NothingRecorded,
    /// Nothing was recorded, because the disk of the database is full.
    DiskFull,
    /// The change may have been recorded.
    OutcomeUnknown,
}

/// The error below [`RecordError::Database`] if the database did not answer.
#[derive(Debug, Error)]
#[error("{source}")]
pub(crate) struct UnansweredTransaction {
    pub(crate) outage: DatabaseOutage,
    pub(crate) source: Box<dyn std::error::Error + Send + Sync>,
}

/// The error below [`StoreError::Remote`].
#[derive(Debug, Error)]
#[error(transparent)]
pub struct RemoteFailure(pub(crate) Box<object_store::Error>);

/// Errors of files and objects.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The operating system reported an error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The object store reported an error.
    #[error("object {name}: {source}")]
    Object {
        /// The object, or the prefix of a listing.
        name: String,
        /// The object store's error.
        source: object_store::Error,
    },
    /// The object does not exist.
    #[error("object {name} is missing")]
    NotFound {
        /// The object.
        name: String,
    },
    /// The object's content is not what was written.
    #[error("object {name} is damaged: {size} bytes with SHA-256 {found}, expected {expected}")]
    Damaged {
        /// The object.
        name: String,
        /// The expected digest.
        expected: Digest,
        /// The digest of the content.
        found: Digest,
        /// Size of the content in bytes.
        size: u64,
    },
    /// A name that is not valid for an object.
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
        /// The number of the process that holds the lock, as that process wrote it; empty if unknown.
        process: String,
    },
    /// A migration into the state directory, or the bucket, was interrupted.
    #[error("{place} has an incomplete copy of a state: run the `saggar migrate` that was interrupted again")]
    IncompleteMigration {
        /// The state directory or the bucket.
        place: String,
    },
    /// A part of the state directory is a symbolic link whose target does not exist.
    #[error(
        "{} is a link to {}, where there is no directory: make it, or bring back the disk that it is on",
        place.display(),
        target.display()
    )]
    LinkToNothing {
        /// The link.
        place: PathBuf,
        /// The link's target.
        target: PathBuf,
    },
    /// The write would exceed the storage quota.
    #[error(
        "quota-exceeded: {wanted} bytes more would not fit: {used} of {limit} are used; raise --storage-quota, or make \
         room with `saggar gc`"
    )]
    QuotaExceeded {
        /// The quota in bytes.
        limit: u64,
        /// Bytes in use.
        used: u64,
        /// Bytes to be added.
        wanted: u64,
    },
    /// A store of objects on another machine did not answer a request, or refused it.
    #[error("{store}: object {name}: {reason}; {fix}")]
    Remote {
        /// The address of the store.
        store: String,
        /// The object, or the prefix of a listing.
        name: String,
        /// The request, and what happened.
        reason: String,
        /// How to fix it.
        fix: &'static str,
        /// The object store's error.
        source: RemoteFailure,
    },
    /// The address of a store of objects, or an environment variable about it, is not valid.
    #[error("the store of objects `{address}`: {reason}")]
    BadStoreAddress {
        /// The address, without secrets.
        address: String,
        /// What is wrong, and what was expected.
        reason: String,
    },
    /// A store of objects lets several requests create the same object.
    #[error(
        "{store} lost a race: {requests} requests created one object at the same time with `If-None-Match: *`, and \
         {created} of them succeeded, expected 1. Workers would overwrite each other's checkpoints. Use a store that \
         checks this condition, such as Amazon S3, MinIO or Ceph"
    )]
    UnsafeStore {
        /// The address of the store.
        store: String,
        /// Requests that succeeded.
        created: usize,
        /// Requests that were made.
        requests: usize,
    },
    /// The runtime shut down during the operation.
    #[error("object {name}: the runtime is shutting down")]
    Interrupted {
        /// The object.
        name: String,
    },
}

impl StoreError {
    /// Adds the path to an I/O error: `.map_err(StoreError::io(path))`.
    pub fn io(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> StoreError {
        move |source| StoreError::Io { path: path.as_ref().to_owned(), source }
    }

    /// Adds the object's name to an error of the object store.
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

/// Errors of checkpoints.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// An error of files or objects.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A newer attempt owns the job; the writer must stop.
    #[error("job {job}: attempt with epoch {epoch} was replaced by one with epoch {newest}")]
    Fenced {
        /// The job.
        job: String,
        /// The writer's epoch.
        epoch: u64,
        /// The newest epoch.
        newest: u64,
    },
    /// The attempt's lease could not be renewed in time, so another attempt may own the job.
    #[error(
        "job {job}: the lease of its attempt could not be renewed, so another server may own the job; nothing is saved \
         until it is renewed"
    )]
    Unsure {
        /// The job.
        job: String,
    },
    /// This attempt already saved other content at this step.
    #[error("{file} exists with other content: a step is saved once in an attempt")]
    AlreadySaved {
        /// The manifest.
        file: String,
    },
    /// The checkpoint does not exist, or was deleted.
    #[error("job {job} has no checkpoint{which}")]
    NotFound {
        /// The job.
        job: String,
        /// The requested checkpoint: ` of step 1200`; empty if any was acceptable.
        which: String,
    },
    /// The checkpoint of the requested step is damaged.
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
        /// The newest format that this build reads.
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
    /// An identifier that is not valid for a job.
    #[error("`{job}` cannot be a job's identifier: letters, digits, `-` and `_` only")]
    BadJob {
        /// The identifier.
        job: String,
    },
    /// The size of a variable does not match its descriptor.
    #[error("variable {name}: {descriptor} takes {expected} bytes, not {found}")]
    WrongSize {
        /// The variable.
        name: String,
        /// Its descriptor.
        descriptor: String,
        /// Bytes that the descriptor requires.
        expected: usize,
        /// Bytes that were passed.
        found: usize,
    },
    /// Two variables have the same name.
    #[error("two variables are called `{name}`")]
    DuplicateName {
        /// The name.
        name: String,
    },
}

/// Errors of the model registry.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// An error of the files.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A name that is not a valid directory name on every system.
    #[error(
        "`{name}` cannot be a name: 1 to 63 lower-case letters, digits, `.`, `_`, `-`, beginning \
         with a letter or digit"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// The model or version does not exist.
    #[error("{} does not exist", dir.display())]
    NotFound {
        /// The directory where it would be.
        dir: PathBuf,
    },
    /// A version is incomplete or damaged. This includes an unfinished copy.
    #[error("{}: {problem}", file.display())]
    Incomplete {
        /// The file, or the directory.
        file: PathBuf,
        /// What is wrong with it.
        problem: FileProblem,
    },
    /// Another server changed the configuration or the desired state at the same time.
    #[error(
        "another server has just changed {model}; look at the model again, and repeat the change if it is still needed"
    )]
    ChangedElsewhere {
        /// The model.
        model: String,
    },
    /// An error of the records that servers share.
    #[error(transparent)]
    Records(Box<RecordError>),
    /// Weights that cannot be stored in a file.
    #[error("weights cannot be written: {reason}")]
    Weights {
        /// The reason.
        reason: String,
    },
}

/// A problem with a file of a model or dataset version.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// The file does not exist.
    #[error("missing; copy it, and manifest.json last")]
    Missing,
    /// The file has another size.
    #[error("has {found} bytes, and manifest.json says {expected}; is the copy finished?")]
    WrongSize {
        /// Bytes according to the manifest.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// The file has other content.
    #[error("has SHA-256 {found}, and manifest.json says {expected}; copy it again")]
    WrongDigest {
        /// Digest according to the manifest.
        expected: Digest,
        /// Digest found.
        found: Digest,
    },
    /// The file cannot be parsed.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// The reason.
        reason: String,
    },
    /// The file has another version of the format.
    #[error("has format {found}, and this build reads format {expected}")]
    OtherFormat {
        /// Its format.
        found: u64,
        /// The format that this build reads.
        expected: u64,
    },
}
