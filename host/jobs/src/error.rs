//! What can go wrong with jobs.

use thiserror::Error;

use saggar_store::error::RecordError;

use crate::limits::{MOUNTS_MAX, PARAMETERS_BYTES_MAX, RETRY_MAX};

/// Why a job's specification is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SpecError {
    /// A name that would not do as part of a path or a metric.
    #[error(
        "{field}: {name:?} is no name: expected 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
    )]
    Name {
        /// `project` or `task`.
        field: &'static str,
        /// What was given.
        name: String,
    },
    /// Not a digest.
    #[error("plugin: expected the 64 hexadecimal digits of a SHA-256, got {plugin:?}")]
    Plugin {
        /// What was given.
        plugin: String,
    },
    /// Too large.
    #[error("parameters: {bytes} bytes of JSON, at most {PARAMETERS_BYTES_MAX} are taken")]
    Parameters {
        /// Their size.
        bytes: usize,
    },
    /// Too many datasets.
    #[error("data: {count} datasets, at most {MOUNTS_MAX} can be mounted")]
    Mounts {
        /// How many were asked for.
        count: usize,
    },
    /// Not an absolute path.
    #[error("data: {mount:?} is no mount point: expected an absolute path such as /data")]
    MountPoint {
        /// What was given.
        mount: String,
    },
    /// Two datasets in one place.
    #[error("data: two datasets are to be mounted at {mount}")]
    MountTwice {
        /// Where.
        mount: String,
    },
    /// Too many attempts.
    #[error("retry: {retry} extra attempts, at most {RETRY_MAX} are made")]
    Retry {
        /// How many were asked for.
        retry: u32,
    },
    /// Never or always.
    #[error("checkpoint_every: expected at least 1")]
    CheckpointEvery,
    /// Not a time.
    #[error("max_runtime_seconds: expected a number above 0")]
    MaxRuntime,
}

/// Why a request about a job failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JobError {
    /// The specification is refused.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A named thing is not there.
    #[error("no {kind} {name}; {hint}")]
    NotFound {
        /// `job`, `plugin`, `dataset`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// How to see what there is.
        hint: String,
    },
    /// The plugin cannot train.
    #[error(
        "plugin {digest} exports no trainer; saggar run takes a plugin built for the world model-plugin or train-plugin"
    )]
    NoTrainer {
        /// Its digest.
        digest: String,
    },
    /// The job's state does not allow it.
    #[error("job {name} is {state}; {hint}")]
    State {
        /// The job.
        name: String,
        /// Its state.
        state: String,
        /// What can be done instead.
        hint: String,
    },
    /// The records could not be read or written.
    #[error("job records: {0}")]
    Records(#[source] RecordError),
    /// The file system said no.
    #[error("job files: {0}")]
    Io(#[from] std::io::Error),
    /// The worker process could not be started.
    #[error("cannot start worker {program}: {source}")]
    Launch {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
}

impl From<RecordError> for JobError {
    fn from(error: RecordError) -> JobError {
        match error {
            RecordError::NoSuchJob { job } => {
                JobError::NotFound { kind: "job", name: job, hint: "`saggar ps -a` lists them".to_owned() }
            }
            RecordError::Finished { job, state } => JobError::State {
                name: job,
                state: state.name().to_owned(),
                hint: "nothing is left to do for it".to_owned(),
            },
            error => JobError::Records(error),
        }
    }
}
