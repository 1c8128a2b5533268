//! Pipelines: steps in an order, from data to a deployment. A plan is what a server runs: it needs no project file, and
//! its steps name jobs by their specification. [`PipelinePlan::check`] finds every mistake before anything runs.
//!
//! Values that are known only later are placeholders in texts: `${params.NAME}`, `${run.id}`, `${run.name}`, `${item}`
//! and `${steps.STEP.outputs.OUTPUT}`. [`TextTemplate`] parses them, and [`TemplateValues`] gives their values.

mod check;
mod cycle;
mod parameters;
mod template;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use check::{NestedInterface, StepOutline, check_outlines};
pub use check::{PlanMistake, StepDependencies, StepDependency};
pub(crate) use cycle::dependency_order;
pub use parameters::{ParameterError, bind_parameters, parse_parameter_text};
pub use template::{PlaceholderReference, TemplateError, TemplateValues, TextTemplate, render_template};
pub(crate) use template::{TemplatePart, display_reference};

/// A pipeline that a server can run. Nested pipelines are already replaced by their steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelinePlan {
    /// The name of the pipeline, after which its runs are numbered: `nightly-1`, `nightly-2`, ...
    pub name: String,
    /// The project of its jobs.
    pub project: String,
    /// The parameters with their default values, which give their types: number, text, boolean or list.
    #[serde(default)]
    pub params: Map<String, Value>,
    /// The steps, in any order.
    pub steps: Vec<PipelineStep>,
}

/// A step of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelineStep {
    /// The name, unique in the pipeline. Steps of a nested pipeline are named `STEP/INNER`.
    pub name: String,
    /// What the step does.
    #[serde(default)]
    pub kind: StepKind,
    /// The steps that must have succeeded or been skipped before. Steps whose outputs are used need not be listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Conditions: booleans, or texts `${params.NAME}` or `!${params.NAME}` of boolean parameters. The step is skipped
    /// unless all are true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<Value>,
    /// The items for each of which the step runs once, as `${item}`: a list, or `${params.NAME}` of a parameter that is
    /// a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<Value>,
    /// The maximum number of items that run at the same time; no limit if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub max_parallel: Option<u32>,
    /// Whether an earlier success with the same plugin, parameters and inputs is used instead of computing again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cache: bool,
    /// Whether the step can be done twice with the same result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
    /// Whether an interrupted attempt continues from its checkpoint.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checkpointed: bool,
    /// The plugin's parameters, besides those of `spec`. Texts can contain placeholders.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
    /// The state that a training starts from if it has no checkpoint: an output `checkpoint` or `model` of a step, or a
    /// reference such as `job:mnist-7/checkpoint@1200` or `model:face@12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_from: Option<String>,
    /// The data that a job reads, besides that of `spec`: datasets, and outputs `output` of steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<StepMount>,
    /// The model of a deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The version of a model that is deployed or predicts: an output `model` of a step or `model:face@12`; a
    /// deployment can also publish an output `checkpoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The alias that a deployment sets; `stable`, the default version, if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// The split of the dataset that a prediction reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// The name of the dataset that a prediction writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// A message for people: a job's description, or the question of an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The other fields of the job's specification, without placeholders; `project` is the plan's.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub spec: Map<String, Value>,
}

/// Data of a step and its mount point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepMount {
    /// A dataset such as `mnist/1`, the output of a job such as `job:mnist-7/output`, or `${steps.STEP.outputs.output}`.
    pub from: String,
    /// The mount point, such as `/data`.
    pub to: String,
}

/// What a step does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// A training job.
    #[default]
    Train,
    /// A job that predicts for every item of a dataset.
    Predict,
    /// The deployment of a model version, if the model's condition allows it.
    Deploy,
    /// Waits until a person approves or rejects.
    Approve,
    /// Another pipeline of the project file. A plan has no such step.
    Pipeline,
}

impl StepKind {
    /// Every kind, by name.
    pub const NAMES: [(&'static str, StepKind); 5] = [
        ("train", StepKind::Train),
        ("predict", StepKind::Predict),
        ("deploy", StepKind::Deploy),
        ("approve", StepKind::Approve),
        ("pipeline", StepKind::Pipeline),
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            StepKind::Train => "train",
            StepKind::Predict => "predict",
            StepKind::Deploy => "deploy",
            StepKind::Approve => "approve",
            StepKind::Pipeline => "pipeline",
        }
    }

    /// Returns whether the step is a job.
    pub fn is_job(self) -> bool {
        match self {
            StepKind::Train | StepKind::Predict => true,
            StepKind::Deploy | StepKind::Approve | StepKind::Pipeline => false,
        }
    }

    /// Returns the names and types of the outputs.
    pub fn outputs(self) -> &'static [(&'static str, OutputType)] {
        match self {
            StepKind::Train => &[
                ("model", OutputType::Model),
                ("checkpoint", OutputType::Checkpoint),
                ("output", OutputType::Files),
                ("job", OutputType::Text),
            ],
            StepKind::Predict => &[("output", OutputType::Files), ("job", OutputType::Text)],
            StepKind::Deploy => &[("model", OutputType::Model)],
            StepKind::Approve | StepKind::Pipeline => &[],
        }
    }
}

/// The type of a step's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputType {
    /// A version of a model: `model:face@12`.
    Model,
    /// A checkpoint of a job: `job:mnist-7/checkpoint@1200`.
    Checkpoint,
    /// The files that a job wrote, which can be mounted as data: `job:mnist-7/output`.
    Files,
    /// A text.
    Text,
}

impl OutputType {
    /// Returns the name in messages.
    pub fn name(self) -> &'static str {
        match self {
            OutputType::Model => "a model",
            OutputType::Checkpoint => "a checkpoint",
            OutputType::Files => "an output",
            OutputType::Text => "a text",
        }
    }
}

impl PipelinePlan {
    /// Checks the whole plan: names, the order, placeholders, the types of inputs, and limits. Returns the steps that
    /// each step depends on.
    ///
    /// # Errors
    /// Every mistake, in the order of the steps.
    pub fn check(&self) -> Result<StepDependencies, Vec<PlanMistake>> {
        check::check_plan(self)
    }

    /// Returns the items of a step, for these values of the parameters; `None` for a step that runs once.
    pub fn items<'a>(step: &'a PipelineStep, params: &'a Map<String, Value>) -> Option<&'a [Value]> {
        let items = match step.for_each.as_ref()? {
            Value::Array(items) => items,
            Value::String(text) => params.get(parameter_name(text)?)?.as_array()?,
            _ => return None,
        };
        Some(items)
    }

    /// Returns whether all conditions of a step are true, for these values of the parameters.
    pub fn is_wanted(step: &PipelineStep, params: &Map<String, Value>) -> bool {
        step.when.iter().all(|condition| match condition {
            Value::Bool(value) => *value,
            Value::String(text) => {
                let (text, negated) = text.strip_prefix('!').map_or((text.as_str(), false), |text| (text, true));
                let value = parameter_name(text).and_then(|name| params.get(name)).and_then(Value::as_bool);
                value.is_some_and(|value| value != negated)
            }
            _ => false,
        })
    }
}

/// Returns the name of the parameter if the text is one placeholder of a parameter.
pub(crate) fn parameter_name(text: &str) -> Option<&str> {
    text.strip_prefix("${params.")?.strip_suffix('}').filter(|name| !name.contains('}'))
}
