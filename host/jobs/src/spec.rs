//! The specification of a job, resolved once at submission and recorded with the job.

mod checkpoint_policy;
mod data_step;
mod health_policy;
mod init_from;
mod mount;
mod notebook;
mod precision;
mod prediction;
mod provenance;
mod replay;
mod retry_cause;
mod step_inputs;
mod validate;

use saggar_compile::DisabledOptimizations;
use saggar_store::checkpoint::BestMetric;
use saggar_store::records::{HostLabels, SchedulingRequest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use checkpoint_policy::{CheckpointEvery, parse_keep_best};
pub use data_step::{DataStepFetch, DataStepOutput, DataStepSource, DataStepSpec, DataStepVersion};
pub use health_policy::{NonFinite, UtilizationPolicy};
pub use init_from::{CheckpointSelector, CheckpointSelectorParseError, InitFrom, InitFromParseError};
pub use mount::{DataMount, DataSource};
pub use notebook::NotebookSpec;
pub use precision::Precision;
pub use prediction::PredictionSpec;
pub use provenance::model_provenance;
pub use replay::{REPLAY_FILE, ReplaySpec, replay_spec};
pub use retry_cause::{
    HOST_LOST, HOST_RESTART, HOST_SHUTDOWN, IDLE, OVER_BUDGET, PREEMPTED, RECYCLED, RetryCause, WORKER_LOST,
};
pub use step_inputs::bind_step_inputs;
pub(crate) use step_inputs::input_mount_point;

/// The output file of a measuring job.
pub const ESTIMATE_FILE: &str = "estimate.json";

/// A job: a training, a step, predictions for a dataset, a data step, a replay of a training, or a notebook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// The project, whose jobs are numbered: `digits` names jobs `digits-1`, `digits-2`, ...
    pub project: String,
    /// The experiment: a label that jobs share, across projects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// The task of the project file that the job was started from.
    #[serde(default = "default_task")]
    pub task: String,
    /// The SHA-256 of an uploaded plugin, as hexadecimal digits. A client can also submit the name of a reference plugin,
    /// which the server replaces. A prediction job gets the model's; a data step and a notebook have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub plugin: String,
    /// The plugin's parameters, or the inputs of a step. Datasets and files among the inputs become mounts.
    #[serde(default)]
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// The mounts that the job reads.
    #[serde(default)]
    pub data: Vec<DataMount>,
    /// The initial state if the job has no checkpoint: `job:mnist-7`, `job:mnist-7/checkpoint@1200`, `model:face@12`;
    /// initial values if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_from: Option<InitFrom>,
    /// The device: `auto`, `cpu`, `gpu`, or a device's name.
    #[serde(default = "default_device")]
    pub device: String,
    /// The labels that its host must have: `gpu = a100`.
    #[serde(default, skip_serializing_if = "HostLabels::is_empty")]
    pub labels: HostLabels,
    /// Slots of its pool: a whole number, or a fraction of one such as 0.25.
    #[serde(default = "default_slots", skip_serializing_if = "is_one")]
    #[schemars(range(min = 0.001, max = 64))]
    pub gpu_slots: f64,
    /// The seed of all random numbers.
    #[serde(default)]
    pub seed: u64,
    /// When checkpoints are due.
    #[serde(default)]
    pub checkpoint_every: CheckpointEvery,
    /// The number of newest checkpoints to keep.
    #[serde(default = "default_keep_last")]
    #[schemars(range(min = 1, max = 10_000))]
    pub checkpoint_keep_last: u32,
    /// The metric whose best checkpoint is kept too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "checkpoint_policy::best_metric_schema")]
    pub checkpoint_keep_best: Option<BestMetric>,
    /// The queue.
    #[serde(default = "default_queue")]
    pub queue: String,
    /// The priority, 0 to 100: jobs of higher priority start first.
    #[serde(default = "default_priority")]
    #[schemars(range(max = 100))]
    pub priority: u8,
    /// Whether a job that comes before this one can preempt it; it continues from its checkpoint later.
    #[serde(default)]
    pub preemptible: bool,
    /// Maximum attempts beyond the first.
    #[serde(default = "default_retry")]
    #[schemars(range(max = 1000))]
    pub retry: u32,
    /// The causes that are retried.
    #[serde(default = "default_retry_on")]
    pub retry_on: Vec<RetryCause>,
    /// The job's maximum running time in seconds, over all attempts, after which it is checkpointed and stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_runtime_seconds: Option<f64>,
    /// How often `max_runtime_seconds` is granted again instead.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(max = 1000))]
    pub auto_extend: u32,
    /// Seconds after which an attempt is checkpointed and the job queued again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_attempt_runtime_seconds: Option<f64>,
    /// Maximum bytes of host memory of the plugin's instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub memory_bytes: Option<u64>,
    /// Maximum bytes of device memory of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub gpu_memory_bytes: Option<u64>,
    /// What to do if the loss or a variable is infinite or not a number.
    #[serde(default, skip_serializing_if = "NonFinite::is_default")]
    pub non_finite: NonFinite,
    /// The precision of the training.
    #[serde(default, skip_serializing_if = "Precision::is_default")]
    pub precision: Precision,
    /// The optimizations to leave out. Every attempt leaves them out.
    #[serde(default, skip_serializing_if = "DisabledOptimizations::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub without: DisabledOptimizations,
    /// The minimum utilization of the device; not checked if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<UtilizationPolicy>,
    /// Names of secrets that the plugin can read. Their values are never recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Worker processes that train one model together.
    #[serde(default = "default_replicas", skip_serializing_if = "is_one_replica")]
    #[schemars(range(min = 1, max = 64))]
    pub replicas: u32,
    /// Hosts that the replicas are divided among, with equal numbers of them on each. The slots are those on each host.
    #[serde(default = "default_replicas", skip_serializing_if = "is_one_replica")]
    #[schemars(range(min = 1, max = 64))]
    pub hosts: u32,
    /// Parts that each batch is divided into, independent of the number of replicas; one per replica if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub shards: Option<u32>,
    /// The predictions to compute; a training if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predict: Option<PredictionSpec>,
    /// The version of a dataset to make, instead of running a plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_step: Option<DataStepSpec>,
    /// The notebook to run, instead of a plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notebook: Option<NotebookSpec>,
    /// Whether the job only measures: it stores nothing but the output `estimate.json`, which estimates the whole
    /// training, and ends once it has the estimate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub measure: bool,
    /// Whether the attempts record their host calls, with digests of every batch, so that they can be replayed. The device
    /// then waits after every step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub record: bool,
    /// The steps of another job to replay; it stores nothing but the output `replay.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplaySpec>,
    /// The user's message about the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

fn default_task() -> String {
    "train".to_owned()
}

fn default_device() -> String {
    "auto".to_owned()
}

fn default_slots() -> f64 {
    1.0
}

fn is_one(slots: &f64) -> bool {
    *slots == 1.0
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn default_keep_last() -> u32 {
    3
}

fn default_queue() -> String {
    "default".to_owned()
}

fn default_priority() -> u8 {
    50
}

fn default_retry() -> u32 {
    5
}

fn default_retry_on() -> Vec<RetryCause> {
    RetryCause::INFRASTRUCTURE.to_vec()
}

fn default_replicas() -> u32 {
    1
}

fn is_one_replica(replicas: &u32) -> bool {
    *replicas == 1
}

impl JobSpec {
    /// Returns the number of worker processes on each of its hosts.
    pub fn replicas_on_each_host(&self) -> u32 {
        self.replicas / self.hosts.max(1)
    }

    /// Returns a job of this project and plugin, with defaults for everything else.
    pub fn new(project: impl Into<String>, plugin: impl Into<String>) -> JobSpec {
        JobSpec {
            project: project.into(),
            experiment: None,
            task: default_task(),
            plugin: plugin.into(),
            parameters: serde_json::Map::new(),
            data: Vec::new(),
            init_from: None,
            device: default_device(),
            labels: HostLabels::new(),
            gpu_slots: default_slots(),
            seed: 0,
            checkpoint_every: CheckpointEvery::default(),
            checkpoint_keep_last: default_keep_last(),
            checkpoint_keep_best: None,
            queue: default_queue(),
            priority: default_priority(),
            preemptible: false,
            retry: default_retry(),
            retry_on: default_retry_on(),
            max_runtime_seconds: None,
            auto_extend: 0,
            max_attempt_runtime_seconds: None,
            memory_bytes: None,
            gpu_memory_bytes: None,
            non_finite: NonFinite::Stop,
            precision: Precision::Float32,
            without: DisabledOptimizations::NONE,
            utilization: None,
            secrets: Vec::new(),
            replicas: default_replicas(),
            hosts: default_replicas(),
            shards: None,
            predict: None,
            data_step: None,
            notebook: None,
            measure: false,
            record: false,
            replay: None,
            message: None,
        }
    }

    /// Returns the names of the jobs whose output, checkpoints or recordings this one reads.
    pub fn referenced_jobs(&self) -> impl Iterator<Item = &str> {
        let mounted = self.data.iter().filter_map(|mount| match &mount.source {
            DataSource::Output { job, .. } => Some(job.as_str()),
            DataSource::Dataset { .. } => None,
        });
        let origin = self.init_from.as_ref().and_then(|origin| match origin {
            InitFrom::Checkpoint { job, .. } => Some(job.as_str()),
            InitFrom::Model { .. } => None,
        });
        let made = self.data_step.as_ref().and_then(|step| match &step.from {
            DataStepSource::Output(output) => Some(output.job.as_str()),
            DataStepSource::Fetch(_) | DataStepSource::Version(_) => None,
        });
        let replayed = self.replay.as_ref().map(|replay| replay.job.as_str());
        mounted.chain(origin).chain(made).chain(replayed)
    }

    /// Returns the properties that determine the job's scheduling.
    pub fn demand(&self) -> SchedulingRequest {
        SchedulingRequest {
            queue: self.queue.clone(),
            priority: self.priority.into(),
            preemptible: self.preemptible,
            device: self.device.clone(),
            slots_milli: (self.gpu_slots * 1000.0).round() as u32,
            labels: self.labels.clone(),
            hosts: self.hosts,
        }
    }
}
