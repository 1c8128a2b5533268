//! What a job is asked to do: resolved once, at submission, and recorded with it.

mod checkpoint_policy;
mod health_policy;
mod init_from;
mod mount;
mod precision;
mod prediction;
mod retry_cause;
mod validate;

use saggar_store::checkpoint::BestMetric;
use saggar_store::records::SchedulingRequest;
use serde::{Deserialize, Serialize};

pub use checkpoint_policy::{CheckpointEvery, parse_keep_best};
pub use health_policy::{NonFinite, UtilizationPolicy};
pub use init_from::{CheckpointSelector, CheckpointSelectorParseError, InitFrom, InitFromParseError};
pub use mount::{DataMount, DataSource};
pub use precision::Precision;
pub use prediction::PredictionSpec;
pub use retry_cause::{
    DEVICE_LOST, HOST_RESTART, HOST_SHUTDOWN, IDLE, NON_FINITE, OVER_BUDGET, PREEMPTED, RECYCLED, RetryCause,
    WORKER_LOST,
};

/// The output of a job that is measured.
pub const ESTIMATE_FILE: &str = "estimate.json";

/// A job: a training, or predictions for a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// The group whose numbers the job's name counts: `digits` names jobs `digits-1`, `digits-2`, ...
    pub project: String,
    /// A label that jobs share, across projects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// The task of the project file that this was started as.
    #[serde(default = "default_task")]
    pub task: String,
    /// SHA-256 of the plugin, as hexadecimal digits.
    pub plugin: String,
    /// Given to the plugin as a JSON object.
    #[serde(default)]
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// What it reads.
    #[serde(default)]
    pub data: Vec<DataMount>,
    /// What it starts from, where it has no checkpoint of its own; initial values where nothing is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_from: Option<InitFrom>,
    /// `auto`, `cpu`, `gpu`, `vulkan:0`.
    #[serde(default = "default_device")]
    pub device: String,
    /// Slots of its pool that it takes: a whole number, or a share of one such as 0.25.
    #[serde(default = "default_slots", skip_serializing_if = "is_one")]
    pub gpu_slots: f64,
    /// Where everything random comes from.
    #[serde(default)]
    pub seed: u64,
    /// When checkpoints are due.
    #[serde(default)]
    pub checkpoint_every: CheckpointEvery,
    /// How many of the newest checkpoints stay.
    #[serde(default = "default_keep_last")]
    pub checkpoint_keep_last: u32,
    /// The checkpoint that stays besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_keep_best: Option<BestMetric>,
    /// The queue.
    #[serde(default = "default_queue")]
    pub queue: String,
    /// Jobs of higher priority start first: 0 to 100.
    #[serde(default = "default_priority")]
    pub priority: u8,
    /// Whether a job that comes before it may take its place; it goes on from its checkpoint later.
    #[serde(default)]
    pub preemptible: bool,
    /// Attempts beyond the first.
    #[serde(default = "default_retry")]
    pub retry: u32,
    /// The causes after which there is another attempt.
    #[serde(default = "default_retry_on")]
    pub retry_on: Vec<RetryCause>,
    /// The job's running time in seconds, all attempts together, after which it is checkpointed and stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_seconds: Option<f64>,
    /// How often `max_runtime_seconds` is granted once more instead.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub auto_extend: u32,
    /// Seconds after which an attempt is checkpointed and the job queued again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempt_runtime_seconds: Option<f64>,
    /// Bytes of host memory the plugin's instance may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Bytes of device memory the job may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory_bytes: Option<u64>,
    /// What becomes of it where its numbers are none any more.
    #[serde(default, skip_serializing_if = "NonFinite::is_default")]
    pub non_finite: NonFinite,
    /// In which numbers it computes.
    #[serde(default, skip_serializing_if = "Precision::is_default")]
    pub precision: Precision,
    /// How busy it must keep its device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<UtilizationPolicy>,
    /// Names of secrets that the plugin may read. Their values are recorded nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Worker processes that train one model together.
    #[serde(default = "default_replicas", skip_serializing_if = "is_one_replica")]
    pub replicas: u32,
    /// Parts that each batch is divided into, whatever the number of replicas; as many as those where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
    /// What it predicts; a job without trains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predict: Option<PredictionSpec>,
    /// Whether it is run for its figures alone: it keeps nothing but [`ESTIMATE_FILE`], which says what the whole would take, and
    /// ends as soon as it knows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub measure: bool,
    /// What the user wrote about it.
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
    /// A job of this project and plugin, with defaults for everything else.
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
            utilization: None,
            secrets: Vec::new(),
            replicas: default_replicas(),
            shards: None,
            predict: None,
            measure: false,
            message: None,
        }
    }

    /// Names of the jobs whose output or checkpoints it reads.
    pub fn referenced_jobs(&self) -> impl Iterator<Item = &str> {
        let mounted = self.data.iter().filter_map(|mount| match &mount.source {
            DataSource::Output { job, .. } => Some(job.as_str()),
            DataSource::Dataset { .. } => None,
        });
        let origin = self.init_from.as_ref().and_then(|origin| match origin {
            InitFrom::Checkpoint { job, .. } => Some(job.as_str()),
            InitFrom::Model { .. } => None,
        });
        mounted.chain(origin)
    }

    /// What its place in the queue depends on.
    pub fn demand(&self) -> SchedulingRequest {
        SchedulingRequest {
            queue: self.queue.clone(),
            priority: self.priority.into(),
            preemptible: self.preemptible,
            device: self.device.clone(),
            slots_milli: (self.gpu_slots * 1000.0).round() as u32,
        }
    }
}
