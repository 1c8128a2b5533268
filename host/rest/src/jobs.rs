//! `/api/v1/jobs`: jobs and their attempts, and the commands to them. A job's specification is
//! `saggar_jobs::JobSpec`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::events::JobEventDocument;
use crate::outputs::OutputFileDocument;

/// Jobs, newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Jobs")]
pub struct JobListDocument {
    /// The jobs.
    pub jobs: Vec<JobDocument>,
    /// The value of the parameter `cursor` that requests older jobs; null if there are no older jobs.
    pub cursor: Option<u64>,
}

/// A job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Job")]
pub struct JobDocument {
    /// Its identifier.
    pub id: String,
    /// Its name, such as `digits-7`.
    pub name: String,
    /// Its project.
    pub project: String,
    /// Its experiment, a label that jobs share.
    pub experiment: Option<String>,
    /// The task of the project file that it was started from.
    pub task: String,
    /// The key that it was submitted with.
    pub owner: Option<String>,
    /// Its state.
    #[schemars(extend("enum" = JOB_STATES))]
    pub state: String,
    /// The code of the reason of its state; empty if the state has no reason.
    pub reason: String,
    /// The reason as text.
    pub message: String,
    /// The user's message about the job.
    pub description: Option<String>,
    /// Tags that users gave it.
    pub tags: BTreeMap<String, String>,
    /// The note that users wrote about it; empty without one.
    pub note: String,
    /// Its queue.
    pub queue: String,
    /// Its priority. Jobs with higher values start first.
    pub priority: i32,
    /// Whether another job can preempt it.
    pub preemptible: bool,
    /// Its position in the queue, if it is queued.
    pub position: Option<u64>,
    /// The pool whose slots it holds.
    pub pool: Option<String>,
    /// The server or worker that runs its newest attempt, or ran it; null without other servers.
    pub server: Option<String>,
    /// The number of its attempts.
    pub attempt: u32,
    /// The maximum number of attempts.
    pub attempts_max: u64,
    /// The number of attempts that were followed by another one, by cause.
    pub interruptions: BTreeMap<String, u64>,
    /// Whether it is paused; its state is then `QUEUED`, but it does not start until it is resumed.
    pub paused: bool,
    /// The step from which it pauses, or is paused; null if it is not to pause, or its number of steps is not known yet.
    pub pause_step: Option<u64>,
    /// The training step that it has completed.
    pub step: u64,
    /// The number of steps that it is to complete; 0 if it is not known.
    pub steps_target: u64,
    /// When it was submitted, in Unix milliseconds.
    pub created_ms: u64,
    /// When its first attempt started.
    pub started_ms: Option<u64>,
    /// When it ended.
    pub finished_ms: Option<u64>,
    /// When the running attempt completed its last step, or started.
    pub advanced_ms: Option<u64>,
    /// The seconds that its attempts ran.
    pub wall_seconds: f64,
    /// The seconds of device time that its attempts used.
    pub gpu_seconds: f64,
    /// Whether a device that the job used has no clock; its seconds are then wall time around the work.
    pub gpu_seconds_estimated: bool,
    /// Steps that were computed again after interruptions.
    pub wasted_steps: u64,
    /// Of the newest attempt: its steps divided by its time; null if it has completed none.
    pub steps_per_second: Option<f64>,
    /// How the attempts' time was spent.
    pub time: JobTimeDocument,
    /// Advice for reducing the time of the newest attempt.
    pub hints: Vec<String>,
    /// The device of the newest attempt.
    pub device: Option<String>,
    /// The names of the hosts of the newest attempt, in the order of their ranks, if it has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The last value of each metric; null for infinities and NaN.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// Its specification, with all references resolved.
    pub spec: Value,
    /// Its attempts. Like the following members, only in the response of `GET /api/v1/jobs/{job}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Vec<AttemptDocument>>,
    /// The files that it wrote; also omitted while the store of objects does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Vec<OutputFileDocument>>,
    /// The model versions that it published, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<Vec<JobPublicationDocument>>,
    /// The outputs of a step that succeeded, by name; omitted for other jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_outputs: Option<BTreeMap<String, StepOutputDocument>>,
    /// Its phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<Vec<PhaseDocument>>,
    /// The newest 100 events, oldest first; all are at `/api/v1/jobs/{job}/events`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<JobEventDocument>>,
}

/// An output of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "StepOutput")]
pub struct StepOutputDocument {
    /// Its type: `integer`, `number`, `text`, `boolean`, `file`, `dataset`, `model` or `checkpoint`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its value; of a file or dataset, the reference by which another job mounts it, such as
    /// `job:digits-7/output/report`.
    pub value: Value,
    /// The size of a file in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The SHA-256 of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

impl JobDocument {
    /// Returns the members of the specification that are shown.
    pub fn spec_summary(&self) -> JobSpecSummary {
        JobSpecSummary::read(&self.spec)
    }
}

/// Where a notebook answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotebookDocument {
    /// The name of its job.
    pub job: String,
    /// The state of its job.
    #[schemars(extend("enum" = JOB_STATES))]
    pub state: String,
    /// The reason of the state as text; empty if it has none.
    pub reason: String,
    /// The path of its page on this server, with its token. Null while it does not run.
    pub path: Option<String>,
}

/// Pauses a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PauseJob")]
pub struct PauseRequest {
    /// The job pauses at the first step boundary at or after this step; at the next one if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_step: Option<u64>,
    /// It pauses only once this series has a value at that step or later, such as `validation/accuracy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
}

/// The members of a job's specification that the server and clients show. Unlike `saggar_jobs::JobSpec`, it is read
/// leniently, because another version can have written the specification.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct JobSpecSummary {
    /// The SHA-256 of the plugin.
    pub plugin: String,
    /// The plugin's parameters.
    pub parameters: Map<String, Value>,
    /// The mounts that the job reads.
    pub data: Vec<MountSummary>,
    /// The initial state if the job has no checkpoint, such as `job:mnist-7`.
    pub init_from: Option<String>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The metric whose best checkpoint is kept.
    pub checkpoint_keep_best: Option<BestMetricSummary>,
    /// The maximum number of attempts beyond the first.
    pub retry: u64,
    /// The worker processes that train one model together; 0 if omitted.
    pub replicas: u32,
    /// The user's message about the job.
    pub message: Option<String>,
}

impl JobSpecSummary {
    /// Reads a specification. One of an unknown form has no members.
    pub fn read(spec: &Value) -> JobSpecSummary {
        JobSpecSummary::deserialize(spec).unwrap_or_default()
    }
}

/// A mount of a job: a version of a dataset, or the outputs of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MountSummary {
    /// The path at which the job reads it.
    pub mount: String,
    /// The dataset's name; empty if it is a job's output.
    pub dataset: String,
    /// The dataset's version.
    pub version: u64,
    /// The job whose outputs are mounted.
    pub job: Option<String>,
    /// A folder or file among its outputs; all if omitted.
    pub path: Option<String>,
}

/// The metric whose best checkpoint is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BestMetricSummary {
    /// Its name.
    pub metric: String,
}

/// The states of a job.
pub const JOB_STATES: [&str; 8] =
    ["QUEUED", "STARTING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"];

/// How the attempts' time was spent. Computing and transferring data to the device can overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "JobTime")]
pub struct JobTimeDocument {
    /// Computing on the device.
    pub compute_seconds: f64,
    /// Transferring data to the device.
    pub data_seconds: f64,
    /// Averaging over processes.
    pub all_reduce_seconds: f64,
    /// Saving checkpoints.
    pub checkpoint_seconds: f64,
    /// The rest.
    pub other_seconds: f64,
}

/// The attempts of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Attempts")]
pub struct AttemptListDocument {
    /// The attempts, oldest first.
    pub attempts: Vec<AttemptDocument>,
}

/// An attempt of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Attempt")]
pub struct AttemptDocument {
    /// Its number, from 1.
    pub number: u32,
    /// Its state: a job's, or `PREEMPTED` or `INTERRUPTED` if another attempt follows.
    pub state: String,
    /// The code of the reason of its end.
    pub reason: String,
    /// The reason as text.
    pub message: String,
    /// Its device; empty if it has none yet.
    pub device: String,
    /// Its pool.
    pub pool: String,
    /// The server or worker that ran it; empty without other servers.
    pub server: String,
    /// The names of its hosts, in the order of their ranks, if it has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// When it started, in Unix milliseconds.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// The step that it started from.
    pub first_step: u64,
    /// The step that it completed last.
    pub last_step: u64,
    /// The seconds that it ran.
    pub wall_seconds: f64,
    /// The seconds of device time that it used.
    pub gpu_seconds: f64,
    /// Whether its device has no clock; its seconds are then wall time around the work.
    pub gpu_seconds_estimated: bool,
    /// The maximum bytes of device memory that it used.
    pub peak_bytes: u64,
    /// The number of samples that it trained on.
    pub samples: u64,
    /// The path of its log. Only in the response of `GET /api/v1/jobs/{job}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// A model version that a job published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "JobPublication")]
pub struct JobPublicationDocument {
    /// The model's name.
    pub model: String,
    /// The version.
    pub version: u64,
}

/// A phase of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Phase")]
pub struct PhaseDocument {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: String,
    /// When it started, in Unix milliseconds.
    pub started_ms: Option<u64>,
    /// When it ended.
    pub ended_ms: Option<u64>,
}

/// Submits a job that repeats another one, with changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Restart")]
pub struct RestartRequest {
    /// Parameters to change; null removes one.
    pub parameters: Map<String, Value>,
    /// Fields of the specification to change; null sets one to its default.
    pub overrides: Map<String, Value>,
    /// Whether to resume from the newest checkpoint; by default, only jobs that did not succeed resume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<bool>,
}

/// The steps of a job to replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ReplayJob")]
pub struct ReplayJobRequest {
    /// The first step to look at, from 1. The replay starts from the newest checkpoint before it.
    #[schemars(range(min = 1))]
    pub from_step: u64,
    /// The last step; the end of the training if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub to_step: Option<u64>,
    /// Names of operands to print: labels, inputs, variables and outputs of the graphs, or numbers of nodes such as `%12`.
    pub print: Vec<String>,
    /// The device; that of the job if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

impl Default for ReplayJobRequest {
    fn default() -> ReplayJobRequest {
        ReplayJobRequest { from_step: 1, to_step: None, print: Vec::new(), device: None }
    }
}

/// A job that was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "RemovedJob")]
pub struct RemovedJobDocument {
    /// Its name.
    pub name: String,
    /// The bytes that its removal freed.
    pub freed_bytes: u64,
}

/// The criteria for jobs to remove.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Sweep")]
pub struct JobGcRequest {
    /// Finished jobs of each project beyond this many of the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_last: Option<u64>,
    /// Jobs that did not succeed and ended longer ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failed_older_than_seconds: Option<f64>,
    /// Only jobs of this project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Only jobs of this experiment. Without another criterion, all of its finished jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// Whether to only list the jobs that would be removed.
    pub dry_run: bool,
}

/// The jobs that match the criteria, which were removed unless it was a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "SweptJobs")]
pub struct JobGcDocument {
    /// The jobs.
    pub jobs: Vec<SweptJobDocument>,
    /// The bytes that their removal frees.
    pub freed_bytes: u64,
    /// Whether they were only listed.
    pub dry_run: bool,
}

/// A job that matches the criteria.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "SweptJob")]
pub struct SweptJobDocument {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: String,
    /// The bytes that its removal frees.
    pub bytes: u64,
}

/// A change of a job's tags and note, all or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "AnnotateJob")]
pub struct AnnotateJobRequest {
    /// Tags that get a value. A job has at most 50, with names of at most 63 bytes and values of at most 500.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Names of tags that are removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// The note, of at most 16 KiB; empty removes it. Kept if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
