//! `/api/v1/sweeps`: hyper-parameter searches and their trials. A sweep's specification is `saggar_sweeps::SweepSpec`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The states of a sweep.
pub const SWEEP_STATES: [&str; 4] = ["RUNNING", "STOPPED", "SUCCEEDED", "FAILED"];

/// The states of a trial.
pub const TRIAL_STATES: [&str; 5] = ["RUNNING", "PAUSED", "COMPLETED", "STOPPED", "FAILED"];

/// Sweeps, newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Sweeps")]
pub struct SweepListDocument {
    /// The sweeps.
    pub sweeps: Vec<SweepDocument>,
}

/// A sweep: a search for parameters of a training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Sweep")]
pub struct SweepDocument {
    /// Its identifier.
    pub id: String,
    /// Its name, such as `digits-sweep-1`.
    pub name: String,
    /// The project of its jobs.
    pub project: String,
    /// The key that it was created with.
    pub owner: Option<String>,
    /// Its state.
    #[schemars(extend("enum" = SWEEP_STATES))]
    pub state: String,
    /// The code of the reason of its state; empty if the state has no reason.
    pub reason: String,
    /// The reason as text.
    pub message: String,
    /// How parameters are chosen and trials stopped early: `full`, `median`, `halving`, `asha`, `tpe`, `tpe-asha` or
    /// `pbt`.
    pub method: String,
    /// The series by which trials are compared.
    pub metric: String,
    /// The direction in which it improves: `min` or `max`.
    #[schemars(extend("enum" = ["min", "max"]))]
    pub direction: String,
    /// The number of trials that it is to have; of `pbt`, the number of members of the population, which copies do not
    /// count for.
    pub trials_target: u32,
    /// The number of its trials in each state; states without trials are left out.
    pub trial_states: BTreeMap<String, u64>,
    /// The number of the best completed trial.
    pub best: Option<u32>,
    /// The value of the best completed trial.
    pub best_value: Option<f64>,
    /// Of `pbt`, the trials whose training led to the best one, oldest first and with the best one last: the schedule of
    /// its parameters. Only in the response of `GET /api/v1/sweeps/{sweep}`, and empty if no trial has a result yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_lineage: Option<Vec<LineageDocument>>,
    /// When it was created, in Unix milliseconds.
    pub created_ms: u64,
    /// When it ended.
    pub finished_ms: Option<u64>,
    /// Its specification, with the references of its job resolved.
    pub spec: Value,
    /// Its trials, by number. Like the next member, only in the response of `GET /api/v1/sweeps/{sweep}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trials: Option<Vec<TrialDocument>>,
    /// How strongly each parameter and the metric are related over the trials, the strongest first; empty with fewer than
    /// four values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub importance: Option<Vec<ParameterImportanceDocument>>,
}

/// A trial of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Trial")]
pub struct TrialDocument {
    /// Its number in the sweep, from 1.
    pub number: u32,
    /// Its state.
    #[schemars(extend("enum" = TRIAL_STATES))]
    pub state: String,
    /// The code of the reason of its state; empty if the state has no reason.
    pub reason: String,
    /// The reason as text.
    pub message: String,
    /// The values of the searched parameters.
    pub parameters: Map<String, Value>,
    /// The name of its job; null before it is submitted and after it was removed.
    pub job: Option<String>,
    /// The state of its job.
    pub job_state: Option<String>,
    /// The training step that it has completed.
    pub step: u64,
    /// The number of steps that it is to complete; 0 if it is not known.
    pub steps_target: u64,
    /// The seconds of device time that it has used.
    pub gpu_seconds: f64,
    /// The index of the rung that it runs to or is paused at, from 0. A trial that runs to its end has the number of
    /// rungs. The rungs of `pbt` are the ends of generations.
    pub rung: u32,
    /// The metric's value at each rung that it has reached, and at its end; null for infinities and NaN, and if it failed.
    /// The values of a copy begin with those of its parent, up to the rung at which it was copied.
    pub rung_values: Vec<Option<f64>>,
    /// The metric's last value; null if it has none, or it is infinite or NaN.
    pub value: Option<f64>,
    /// The member of the population that it belongs to, which is the number of the member's first trial. Only with `pbt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<u32>,
    /// The trial whose state it continues from. Only of copies in a population.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<TrialParentDocument>,
}

impl TrialDocument {
    /// Returns the training steps that its own job completed: a copy in a population begins at the step of its parent's
    /// state.
    pub fn own_steps(&self) -> u64 {
        let first = self.parent.as_ref().and_then(|parent| parent.step).unwrap_or(0);
        self.step.saturating_sub(first)
    }
}

/// The trial that a copy in a population continues from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "TrialParent")]
pub struct TrialParentDocument {
    /// The number of the trial.
    pub trial: u32,
    /// The index of the rung at which it was copied: the generation, from 0.
    pub rung: u32,
    /// The training step of the copied state; null before the copy's job is submitted and after it was removed.
    pub step: Option<u64>,
}

/// A part of the training that led to a trial of a population.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "TrialLineage")]
pub struct LineageDocument {
    /// The number of the trial.
    pub trial: u32,
    /// The name of its job; null if it was removed.
    pub job: Option<String>,
    /// The training step from which it trained with its parameters; null if it is not known.
    pub from_step: Option<u64>,
    /// The values of the searched parameters.
    pub parameters: Map<String, Value>,
}

/// Publishes the result of a sweep. An empty body names no model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PublishTrial")]
pub struct PublishTrialRequest {
    /// The model whose version it becomes; the model that the best trial published if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// The version of a model that the best trial of a sweep became.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "SweepPublication")]
pub struct SweepPublicationDocument {
    /// The sweep.
    pub sweep: String,
    /// The number of its best trial.
    pub trial: u32,
    /// The name of the trial's job.
    pub job: String,
    /// The metric's value.
    pub value: Option<f64>,
    /// The model.
    pub model: String,
    /// The version, which is the default now.
    pub version: u64,
    /// Whether this created the version; otherwise the same content was published before.
    pub is_new: bool,
    /// Where its weights are from: `model:NAME@VERSION` or `job:NAME/checkpoint@STEP`.
    pub source: String,
}

/// How strongly a parameter and the metric are related: the rank correlation over the trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ParameterImportance")]
pub struct ParameterImportanceDocument {
    /// The parameter.
    pub parameter: String,
    /// From 0, unrelated, to 1.
    pub importance: f64,
    /// Spearman's rank correlation of the parameter with the metric, from -1 to 1; null if its values are no numbers.
    pub correlation: Option<f64>,
}
