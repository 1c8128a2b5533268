//! `/api/v1/compare`: jobs, pipeline runs or sweeps side by side.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::jobs::JobDocument;
use crate::pipelines::{PipelineOutputDocument, PipelineRunDocument};

/// The kind of jobs.
pub const COMPARED_JOBS: &str = "job";
/// The kind of pipeline runs.
pub const COMPARED_RUNS: &str = "pipeline-run";
/// The kind of sweeps.
pub const COMPARED_SWEEPS: &str = "sweep";
/// What can be compared.
pub const COMPARISON_KINDS: [&str; 3] = [COMPARED_JOBS, COMPARED_RUNS, COMPARED_SWEEPS];

/// Things of one kind side by side. Every list of values has one for each of them, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Comparison")]
pub struct ComparisonDocument {
    /// What they are.
    #[schemars(extend("enum" = COMPARISON_KINDS))]
    pub kind: String,
    /// The jobs, if they are jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<JobDocument>>,
    /// The comparison of pipeline runs, if they are that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline_runs: Option<PipelineRunComparisonDocument>,
    /// The comparison of sweeps, if they are that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweeps: Option<SweepComparisonDocument>,
}

/// The values of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ComparedValues")]
pub struct ComparedValuesDocument {
    /// The name.
    pub name: String,
    /// The values; null for what has no such value.
    pub values: Vec<Value>,
    /// Whether they differ.
    pub differs: bool,
}

/// Pipeline runs side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "PipelineRunComparison")]
pub struct PipelineRunComparisonDocument {
    /// The runs, without their steps.
    pub runs: Vec<PipelineRunDocument>,
    /// The parameters.
    pub params: Vec<ComparedValuesDocument>,
    /// The steps, in the order of the plans.
    pub steps: Vec<ComparedStepDocument>,
}

/// A step, or an item of a step, in several runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ComparedStep")]
pub struct ComparedStepDocument {
    /// The name of the step.
    pub name: String,
    /// The item, for a step with items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<Value>,
    /// The current attempt in each run; null in a run without the step or the item.
    pub attempts: Vec<Option<ComparedAttemptDocument>>,
    /// The outputs.
    pub outputs: Vec<ComparedOutputDocument>,
    /// The last value of each metric of the step's job; null for infinities and NaN.
    pub metrics: Vec<ComparedValuesDocument>,
}

/// The current attempt of a step in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ComparedAttempt")]
pub struct ComparedAttemptDocument {
    /// Its state.
    pub state: String,
    /// Its number, from 1.
    pub attempt: u32,
    /// The seconds from its start to its end, or to now; null before its start.
    pub seconds: Option<f64>,
    /// The name of its job.
    pub job: Option<String>,
    /// The run whose result it uses.
    pub cached_from: Option<String>,
}

/// An output of a step in several runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ComparedOutput")]
pub struct ComparedOutputDocument {
    /// Its name.
    pub name: String,
    /// The output of each run; null in a run without it.
    pub outputs: Vec<Option<PipelineOutputDocument>>,
    /// Whether the contents differ: the digests, or the references of outputs without one.
    pub differs: bool,
}

/// Sweeps side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "SweepComparison")]
pub struct SweepComparisonDocument {
    /// The sweeps.
    pub sweeps: Vec<ComparedSweepDocument>,
    /// The range of each searched parameter, as text.
    pub space: Vec<ComparedValuesDocument>,
    /// The rest of the specifications: the settings of the search, and what its jobs have in common, such as
    /// `job.parameters.epochs`.
    pub settings: Vec<ComparedValuesDocument>,
    /// The parameters of the best completed trials.
    pub best_parameters: Vec<ComparedValuesDocument>,
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ComparedSweep")]
pub struct ComparedSweepDocument {
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: String,
    /// Its state.
    #[schemars(extend("enum" = crate::sweeps::SWEEP_STATES))]
    pub state: String,
    /// How parameters are chosen and trials stopped early.
    pub method: String,
    /// The series by which trials are compared.
    pub metric: String,
    /// The direction in which it improves: `min` or `max`.
    #[schemars(extend("enum" = ["min", "max"]))]
    pub direction: String,
    /// The number of trials that it is to have.
    pub trials_target: u32,
    /// The number of its trials in each state; states without trials are left out.
    pub trial_states: BTreeMap<String, u64>,
    /// The training steps that its trials completed, in all.
    pub steps: u64,
    /// The seconds of device time that its trials used.
    pub gpu_seconds: f64,
    /// The seconds from its creation to its end, or to now.
    pub seconds: f64,
    /// The number of the best completed trial.
    pub best: Option<u32>,
    /// The value of the best completed trial.
    pub best_value: Option<f64>,
    /// The job of the best completed trial.
    pub best_job: Option<String>,
}
