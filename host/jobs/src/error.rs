//! Errors of jobs.

use thiserror::Error;

use saggar_store::error::RecordError;

use crate::limits::{MESSAGE_BYTES_MAX, MOUNTS_MAX, PARAMETERS_BYTES_MAX, RETRY_MAX, SLOTS_MAX};

/// Why a job's specification is rejected.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SpecError {
    /// A name that is not valid as part of a path or a metric.
    #[error(
        "{field}: invalid name {name:?}: expected 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
    )]
    Name {
        /// The field: `project` or `task`.
        field: &'static str,
        /// The given name.
        name: String,
    },
    /// A label of a host that is not valid.
    #[error("labels: invalid label {name:.80}={value:.80}: expected {} on both sides", saggar_project::LABEL_RULE)]
    Label {
        /// The name.
        name: String,
        /// The value.
        value: String,
    },
    /// A parameter value that the plugin's declaration does not allow.
    #[error("parameters.{name}: expected {expected}, got {got}")]
    Parameter {
        /// The parameter's name.
        name: String,
        /// The allowed values.
        expected: String,
        /// The given value, as JSON.
        got: String,
    },
    /// An input of a step that has no value.
    #[error("input `{name}` is missing: expected {expected}; use `saggar run PLUGIN -- {name}=VALUE`")]
    MissingInput {
        /// The input's name.
        name: String,
        /// The allowed values.
        expected: String,
    },
    /// A parameter or mount of a step that is not one of its inputs.
    #[error("`{name}` is not an input of this step; it has: {known}")]
    UnknownInput {
        /// The given name.
        name: String,
        /// The names of the inputs.
        known: String,
    },
    /// An optimization that a job does not have.
    #[error("without: expected optimizations of a job ({}), got {name}", saggar_project::JOB_OPTIMIZATIONS.join(", "))]
    Optimization {
        /// The given name.
        name: &'static str,
    },
    /// A step with something that only a training has.
    #[error("step: {reason}")]
    Step {
        /// The reason.
        reason: &'static str,
    },
    /// The plugin reads a dataset that the job does not mount.
    #[error(
        "data: the plugin reads a dataset at {mount}, but the job mounts none there; use `saggar run --data NAME:{mount}`"
    )]
    NotMounted {
        /// The mount point.
        mount: String,
    },
    /// The dataset lacks a field that the plugin reads.
    #[error("data: the plugin reads the field `{field}` of {mount}, but dataset {dataset} lacks it; it has: {fields}")]
    NoField {
        /// The field.
        field: String,
        /// The dataset's mount point.
        mount: String,
        /// The dataset.
        dataset: String,
        /// The fields of the dataset.
        fields: String,
    },
    /// A device that this machine does not have.
    #[error("device: this machine has no {device}; it has: auto, {known}")]
    NoDevice {
        /// The requested device.
        device: String,
        /// The existing devices.
        known: String,
    },
    /// The plugin is not a digest.
    #[error("plugin: expected the 64 hexadecimal digits of a SHA-256, got {plugin:?}")]
    Plugin {
        /// The given text.
        plugin: String,
    },
    /// A job that cannot be measured.
    #[error("measure: {reason}")]
    Measure {
        /// The reason.
        reason: &'static str,
    },
    /// A job that cannot be recorded.
    #[error("record: {reason}")]
    Record {
        /// The reason.
        reason: &'static str,
    },
    /// An invalid replay.
    #[error("replay: {reason}")]
    Replay {
        /// The reason.
        reason: String,
    },
    /// An invalid prediction job.
    #[error("predict: {reason}")]
    Prediction {
        /// The reason.
        reason: &'static str,
    },
    /// An invalid data step.
    #[error("data_step: {reason}")]
    DataStep {
        /// The reason.
        reason: &'static str,
    },
    /// An invalid notebook.
    #[error("notebook: {reason}")]
    Notebook {
        /// The reason.
        reason: &'static str,
    },
    /// The message is too long.
    #[error("message: {bytes} bytes; the maximum is {MESSAGE_BYTES_MAX}")]
    Message {
        /// Its size in bytes.
        bytes: usize,
    },
    /// The parameters are too large.
    #[error("parameters: {bytes} bytes of JSON; the maximum is {PARAMETERS_BYTES_MAX}")]
    Parameters {
        /// Their size in bytes.
        bytes: usize,
    },
    /// Too many datasets.
    #[error("data: {count} datasets, at most {MOUNTS_MAX} can be mounted")]
    Mounts {
        /// The number of datasets.
        count: usize,
    },
    /// The mount point is not an absolute path.
    #[error("data: invalid mount point {mount:?}: expected an absolute path such as /data")]
    MountPoint {
        /// The given path.
        mount: String,
    },
    /// Two datasets have the same mount point.
    #[error("data: two datasets are to be mounted at {mount}")]
    MountTwice {
        /// The mount point.
        mount: String,
    },
    /// Too many attempts.
    #[error("retry: {retry} extra attempts; the maximum is {RETRY_MAX}")]
    Retry {
        /// The requested number of extra attempts.
        retry: u32,
    },
    /// A checkpoint interval of 0.
    #[error("checkpoint_every: expected at least 1")]
    CheckpointEvery,
    /// The path is not below a job's output.
    #[error("data: {path:?} is not a path of a job's output")]
    OutputPath {
        /// The given path.
        path: String,
    },
    /// A number of seconds that is not positive and finite.
    #[error("{field}: expected a number of seconds above 0")]
    Seconds {
        /// The field.
        field: &'static str,
    },
    /// A share outside its range.
    #[error("{field}: min_gpu is {value}: expected a share above 0 and at most 1, such as 0.1")]
    Share {
        /// The field.
        field: &'static str,
        /// The given value.
        value: f64,
    },
    /// A memory limit of 0.
    #[error("{field}: expected at least 1 byte")]
    Bytes {
        /// The field.
        field: &'static str,
    },
    /// A value outside its range.
    #[error("{field}: {value} is not from {least} to {most}")]
    Range {
        /// The field.
        field: &'static str,
        /// The given value.
        value: f64,
        /// The minimum.
        least: f64,
        /// The maximum.
        most: f64,
    },
    /// The shards cannot be divided evenly among the replicas.
    #[error("shards: {shards} cannot be shared by {replicas} replicas; expected a multiple of their number")]
    Shards {
        /// The number of parts of each batch.
        shards: u32,
        /// The number of worker processes.
        replicas: u32,
    },
    /// The replicas cannot be divided evenly among the hosts.
    #[error(
        "hosts: {replicas} replicas cannot be divided among {hosts} hosts; expected a multiple of their number, such as \
         `--replicas {hosts} --hosts {hosts}`"
    )]
    Hosts {
        /// The number of hosts.
        hosts: u32,
        /// The number of worker processes.
        replicas: u32,
    },
}

/// Why a configuration of pools and queues is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SchedulerConfigError {
    /// An invalid name.
    #[error(
        "{kind}: invalid name {name:?}: expected 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
    )]
    Name {
        /// `pool` or `queue`.
        kind: &'static str,
        /// The given name.
        name: String,
    },
    /// The number of slots is 0, or too large.
    #[error("pool {pool}: expected from 0.001 to {SLOTS_MAX} slots")]
    Slots {
        /// The pool.
        pool: String,
    },
    /// A queue without a pool, whose jobs could never run.
    #[error("queue {queue} names no pool: expected at least one, for example pools = [\"vulkan:0\", \"cpu\"]")]
    NoPool {
        /// The queue.
        queue: String,
    },
    /// A pool that does not exist.
    #[error("queue {queue} names pool {pool}, which is not configured")]
    UnknownPool {
        /// The queue.
        queue: String,
        /// The pool.
        pool: String,
    },
    /// A limit of 0, so that no job of the queue could ever run.
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
    /// The specification is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A named thing does not exist.
    #[error("no {kind} {name}; {hint}")]
    NotFound {
        /// `job`, `plugin`, `dataset`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// How to list the existing ones.
        hint: String,
    },
    /// The server's records are its own, so that no worker can join and nothing can be drained.
    #[error(
        "this server has no workers, because its records are in its state directory; `saggar serve --database \
         postgres://USER@HOST/DATABASE` starts a server that workers can join"
    )]
    NoWorkers,
    /// A host of another version asks for the settings of a worker.
    #[error(
        "the worker has version {version:.64}, and the server {server}; install the server's version on the worker"
    )]
    WorkerVersion {
        /// The worker's version.
        version: String,
        /// The server's version.
        server: &'static str,
    },
    /// The server runs no notebooks.
    #[error("this server runs no notebooks; `saggar serve --notebooks 2` allows two at once")]
    NotebooksOff,
    /// A queue that is not configured.
    #[error("queue: there is no queue {queue}; there are: {known}")]
    NoQueue {
        /// The requested queue.
        queue: String,
        /// The configured queues.
        known: String,
    },
    /// An invalid cron expression.
    #[error("cron: {reason}")]
    Cron {
        /// The reason.
        reason: String,
    },
    /// Other jobs still read the job's files.
    #[error("job {name} is read by {readers}; remove it after they have ended")]
    Read {
        /// The job.
        name: String,
        /// The jobs that read it.
        readers: String,
    },
    /// An override of a restart is invalid.
    #[error("overrides: {reason}")]
    Override {
        /// The reason.
        reason: String,
    },
    /// A reference of a schedule's job cannot be resolved when it is due.
    #[error("{reason}")]
    Unresolved {
        /// The missing thing.
        reason: String,
    },
    /// The plugin cannot run as a job.
    #[error(
        "plugin {digest} exports no trainer and no step; saggar run takes a plugin built for the world model-plugin, \
         train-plugin or step-plugin"
    )]
    NoTrainer {
        /// Its digest.
        digest: String,
    },
    /// The job's state does not allow the request.
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
    /// A file system error.
    #[error("job files: {0}")]
    Io(#[from] std::io::Error),
    /// The worker process could not be started.
    #[error("cannot start worker {program}: {source}")]
    Launch {
        /// The program.
        program: String,
        /// The reason.
        source: std::io::Error,
    },
}

impl JobError {
    /// Returns the error for a schedule that does not exist.
    pub fn no_schedule(name: &str) -> JobError {
        let hint = "GET /api/v1/schedules lists them".to_owned();
        JobError::NotFound { kind: "schedule", name: name.to_owned(), hint }
    }

    /// Returns the error for a host that does not exist or is lost.
    pub fn no_host(name: &str) -> JobError {
        let hint = "`saggar ps --workers` lists them".to_owned();
        JobError::NotFound { kind: "host", name: name.to_owned(), hint }
    }

    /// Returns whether the server, not the request, is at fault, so that a retry can succeed.
    pub fn is_server_fault(&self) -> bool {
        match self {
            JobError::Records(error) => !matches!(error, RecordError::Invalid { .. } | RecordError::QueueFull { .. }),
            JobError::Io(_) | JobError::Launch { .. } => true,
            _ => false,
        }
    }

    /// Returns the error for a job name or identifier that does not exist.
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
