//! What can go wrong with jobs.

use thiserror::Error;

use saggar_store::error::RecordError;

use crate::limits::{MESSAGE_BYTES_MAX, MOUNTS_MAX, PARAMETERS_BYTES_MAX, RETRY_MAX, SLOTS_MAX};

/// Why a job's specification is refused.
#[derive(Clone, Debug, Error, PartialEq)]
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
    /// A parameter that the plugin declares not to take.
    #[error("parameters.{name}: expected {expected}, got {got}")]
    Parameter {
        /// Its name.
        name: String,
        /// What it may be.
        expected: String,
        /// What was given, as JSON.
        got: String,
    },
    /// The plugin reads a dataset that the job does not mount.
    #[error(
        "data: the plugin reads a dataset at {mount}, and the job mounts none there; `saggar run --data NAME:{mount}` does"
    )]
    NotMounted {
        /// The mount point.
        mount: String,
    },
    /// A dataset without a field that the plugin reads.
    #[error("data: the plugin reads the field `{field}` of {mount}, and dataset {dataset} has none; it has: {fields}")]
    NoField {
        /// The field.
        field: String,
        /// Where the plugin finds the dataset.
        mount: String,
        /// The dataset.
        dataset: String,
        /// The fields that it has.
        fields: String,
    },
    /// A device that is none of this machine's.
    #[error("device: this machine has no {device}; it has: auto, {known}")]
    NoDevice {
        /// What was asked for.
        device: String,
        /// The devices that there are.
        known: String,
    },
    /// Not a digest.
    #[error("plugin: expected the 64 hexadecimal digits of a SHA-256, got {plugin:?}")]
    Plugin {
        /// What was given.
        plugin: String,
    },
    /// A job that is to be measured and cannot be.
    #[error("measure: {reason}")]
    Measure {
        /// Why.
        reason: &'static str,
    },
    /// A prediction job that asks for what it cannot have.
    #[error("predict: {reason}")]
    Prediction {
        /// What is wrong.
        reason: &'static str,
    },
    /// Words that are too many.
    #[error("message: {bytes} bytes, at most {MESSAGE_BYTES_MAX} are taken")]
    Message {
        /// Their bytes.
        bytes: usize,
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
    /// Not a path below a job's output.
    #[error("data: {path:?} is no path of a job's output")]
    OutputPath {
        /// What was given.
        path: String,
    },
    /// Not a time.
    #[error("{field}: expected a number of seconds above 0")]
    Seconds {
        /// Which field.
        field: &'static str,
    },
    /// Not a share.
    #[error("{field}: min_gpu is a share above 0 and at most 1 such as 0.1, not {value}")]
    Share {
        /// Which field.
        field: &'static str,
        /// What it holds.
        value: f64,
    },
    /// No memory at all.
    #[error("{field}: expected at least 1 byte")]
    Bytes {
        /// Which field.
        field: &'static str,
    },
    /// Too small or too large.
    #[error("{field}: {value} is not from {least} to {most}")]
    Range {
        /// Which field.
        field: &'static str,
        /// What was given.
        value: f64,
        /// The smallest that is taken.
        least: f64,
        /// The largest that is taken.
        most: f64,
    },
    /// Shards that the replicas cannot share.
    #[error("shards: {shards} cannot be shared by {replicas} replicas; expected a multiple of their number")]
    Shards {
        /// Parts of each batch.
        shards: u32,
        /// Worker processes.
        replicas: u32,
    },
}

/// Why pools and queues cannot be as they are configured.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SchedulerConfigError {
    /// Not a name.
    #[error(
        "{kind} {name:?} is no name: expected 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
    )]
    Name {
        /// `pool` or `queue`.
        kind: &'static str,
        /// What was given.
        name: String,
    },
    /// No slots, or too many.
    #[error("pool {pool}: expected from 0.001 to {SLOTS_MAX} slots")]
    Slots {
        /// The pool.
        pool: String,
    },
    /// A queue whose jobs could never run.
    #[error("queue {queue} names no pool; expected such as pools = [\"vulkan:0\", \"cpu\"]")]
    NoPool {
        /// The queue.
        queue: String,
    },
    /// A pool that is not there.
    #[error("queue {queue} names pool {pool}, which is not configured")]
    UnknownPool {
        /// The queue.
        queue: String,
        /// The pool.
        pool: String,
    },
    /// No job of the queue could ever run.
    #[error("queue {queue}: max_running_jobs: expected at least 1")]
    NeverRuns {
        /// The queue.
        queue: String,
    },
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
    /// A queue that is not configured.
    #[error("queue: there is no queue {queue}; there are: {known}")]
    NoQueue {
        /// What was asked for.
        queue: String,
        /// Those that there are.
        known: String,
    },
    /// Not a time.
    #[error("cron: {reason}")]
    Cron {
        /// Why.
        reason: String,
    },
    /// Others still read it.
    #[error("job {name} is read by {readers}; remove it when they are over")]
    Read {
        /// The job.
        name: String,
        /// Those that read it.
        readers: String,
    },
    /// What a restart should change cannot be.
    #[error("overrides: {reason}")]
    Override {
        /// Why.
        reason: String,
    },
    /// What a schedule's job refers to is not there when its time has come.
    #[error("{reason}")]
    Unresolved {
        /// What is missing.
        reason: String,
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

impl JobError {
    /// That there is no schedule of this name.
    pub fn no_schedule(name: &str) -> JobError {
        let hint = "GET /api/v1/schedules lists them".to_owned();
        JobError::NotFound { kind: "schedule", name: name.to_owned(), hint }
    }

    /// Whether nothing is wrong with what was asked for, so that it may be done a moment later.
    pub(crate) fn is_server_fault(&self) -> bool {
        match self {
            JobError::Records(error) => !matches!(error, RecordError::Invalid { .. } | RecordError::QueueFull { .. }),
            JobError::Io(_) | JobError::Launch { .. } => true,
            _ => false,
        }
    }

    /// That there is no job of this name or identifier.
    pub fn no_job(name: &str) -> JobError {
        let hint = "`saggar ps -a` lists them".to_owned();
        JobError::NotFound { kind: "job", name: name.to_owned(), hint }
    }
}

impl From<RecordError> for JobError {
    fn from(error: RecordError) -> JobError {
        match error {
            RecordError::NoSuchJob { job } => JobError::no_job(&job),
            RecordError::Finished { job, state } => JobError::State {
                name: job,
                state: state.name().to_owned(),
                hint: "nothing is left to do for it".to_owned(),
            },
            error => JobError::Records(error),
        }
    }
}
