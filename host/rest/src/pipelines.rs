//! `/api/v1/pipelines` and `/api/v1/pipeline-runs`.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of checking a pipeline that has no mistakes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "CheckedPipeline")]
pub struct CheckedPipelineDocument {
    /// The name of the pipeline.
    pub name: String,
    /// The number of steps.
    pub steps: u64,
    /// The values of all parameters.
    pub params: Value,
}

/// Pipeline runs, newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "PipelineRuns")]
pub struct PipelineRunListDocument {
    /// The runs, without their steps.
    pub runs: Vec<PipelineRunDocument>,
    /// The cursor of the next page, if there may be one.
    pub cursor: Option<u64>,
}

/// A pipeline run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "PipelineRun")]
pub struct PipelineRunDocument {
    /// The identifier.
    pub id: String,
    /// The name: the pipeline's with a number.
    pub name: String,
    /// The name of the pipeline.
    pub pipeline: String,
    /// The project of its jobs.
    pub project: String,
    /// The state: `RUNNING`, `SUCCEEDED`, `FAILED` or `CANCELLED`.
    pub state: String,
    /// A code for the state's reason, or nothing.
    pub reason: String,
    /// The reason as a sentence.
    pub message: String,
    /// The key that started it.
    pub owner: Option<String>,
    /// When it was started, in Unix milliseconds.
    pub created_ms: u64,
    /// When it ended, in Unix milliseconds.
    pub finished_ms: Option<u64>,
    /// The values of all parameters.
    pub params: Value,
    /// The run that did not succeed and whose results it takes where nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse_from: Option<String>,
    /// The steps, in the order of the plan. Lists have no steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<PipelineStepDocument>>,
}

/// A step of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "PipelineRunStep")]
pub struct PipelineStepDocument {
    /// The name.
    pub name: String,
    /// What it does: `train`, `predict`, `plugin`, `data`, `deploy` or `approve`.
    pub kind: String,
    /// The steps that it waits for.
    pub after: Vec<String>,
    /// The state of all items together: `PENDING`, `RUNNING`, `WAITING`, `SUCCEEDED`, `FAILED`, `SKIPPED` or
    /// `CANCELLED`.
    pub state: String,
    /// The attempts of every item, in order. The last one of an item is the current one.
    pub attempts: Vec<PipelineAttemptDocument>,
}

/// An attempt of an item of a step. Retries of a job are attempts of the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "PipelineAttempt")]
pub struct PipelineAttemptDocument {
    /// The number of the item, from 0.
    pub item: u32,
    /// The item, for a step with items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The state.
    pub state: String,
    /// A code for the state's reason, or nothing.
    pub reason: String,
    /// The reason as a sentence.
    pub message: String,
    /// The name of its job.
    pub job: Option<String>,
    /// The run whose result it uses.
    pub cached_from: Option<String>,
    /// What it read.
    pub inputs: Vec<PipelineInputDocument>,
    /// Its outputs by name.
    pub outputs: IndexMap<String, PipelineOutputDocument>,
    /// When it started, in Unix milliseconds.
    pub started_ms: Option<u64>,
    /// When it ended, in Unix milliseconds.
    pub finished_ms: Option<u64>,
}

/// Something that a step read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "PipelineInput")]
pub struct PipelineInputDocument {
    /// Which input it is: `plugin`, `init_from`, `model`, a mount point, an input of a step, or `from` of a data step.
    pub name: String,
    /// The resolved reference, such as `mnist/3`. Of a plugin, the name of the component, or its digest.
    pub reference: String,
    /// The SHA-256 of the content, where there is one.
    pub digest: Option<String>,
}

/// An output of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "PipelineOutput")]
pub struct PipelineOutputDocument {
    /// The value that other steps use: a reference such as `model:face@12`, a text, a number or a boolean.
    pub value: Value,
    /// The type: `model`, `checkpoint`, `files`, `file`, `dataset-files`, `dataset`, `text`, `integer`, `number` or
    /// `boolean`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The SHA-256 of the content, where there is one.
    pub digest: Option<String>,
}

/// Approves or rejects a step that waits for a person.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PipelineApproval")]
pub struct PipelineApprovalRequest {
    /// The step.
    pub step: String,
    /// Whether the run may go on.
    pub approve: bool,
}

/// Makes a run that is over continue.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PipelineRestart")]
pub struct PipelineRestartRequest {
    /// The step to repeat, with all that depend on it, besides the steps that did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// The name of the run that was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "RemovedPipelineRun")]
pub struct RemovedPipelineRunDocument {
    /// The name.
    pub name: String,
}

/// Pipelines that start at set times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ScheduledPipelines")]
pub struct PipelineScheduleListDocument {
    /// The pipelines, by name.
    pub pipelines: Vec<PipelineScheduleDocument>,
}

/// A pipeline that starts at set times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ScheduledPipeline")]
pub struct PipelineScheduleDocument {
    /// The name of the pipeline.
    pub name: String,
    /// The project of its runs.
    pub project: String,
    /// Five fields of cron, in UTC.
    pub cron: String,
    /// The key that it was set with.
    pub owner: Option<String>,
    /// When it was set, in Unix milliseconds.
    pub created_ms: u64,
    /// When it is due next, in Unix milliseconds.
    pub next_ms: Option<u64>,
    /// The name of the last run that it started.
    pub last_run: Option<String>,
}

/// Makes a pipeline start at set times, instead of those set before. `Run` is the type of a run's request.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewPipelineSchedule")]
pub struct SetPipelineScheduleRequest<Run> {
    /// Five fields of cron, in UTC.
    pub cron: String,
    /// The plan and the parameters.
    pub run: Run,
}

/// The name of the pipeline whose schedule was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "RemovedPipelineSchedule")]
pub struct RemovedPipelineScheduleDocument {
    /// The name.
    pub name: String,
}
