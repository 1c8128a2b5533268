//! Pipelines: steps in an order, from data to a deployment. A plan is what a server runs: it needs no project file, and
//! its steps name jobs by their specification. [`PipelinePlan::check`] finds every mistake before anything runs.
//!
//! Values that are known only later are placeholders in texts: `${params.NAME}`, `${run.id}`, `${run.name}`, `${item}`
//! and `${steps.STEP.outputs.OUTPUT}`. [`TextTemplate`] parses them, and [`TemplateValues`] gives their values.

mod check;
mod condition;
mod cycle;
mod kind;
mod parameters;
mod references;
mod template;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use check::{NestedInterface, StepOutline, check_outlines};
pub use check::{PlanMistake, StepDependencies, StepDependency};
pub use condition::ConditionError;
pub(crate) use condition::{ConditionOperand, StepCondition};
pub(crate) use cycle::dependency_order;
pub use kind::{OutputType, StepKind};
pub use parameters::{ParameterError, bind_parameters, parse_parameter_text};
pub use template::{PlaceholderReference, TemplateError, TemplateValues, TextTemplate, render_template};
pub(crate) use template::{TemplatePart, display_reference};

use crate::parameter::ParameterDeclaration;

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
    /// Conditions: booleans, texts such as `${params.deploy}` or `!${params.deploy}` of a boolean parameter or output, and
    /// comparisons such as `${steps.eval.outputs.accuracy} > 0.9` with `==`, `!=`, `<`, `<=`, `>` or `>=`. The step is
    /// skipped unless all are true.
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
    /// The parameters or inputs of the plugin, besides those of `spec`. Texts can contain placeholders.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
    /// The state that a training starts from if it has no checkpoint: an output `checkpoint` or `model` of a step, or a
    /// reference such as `job:mnist-7/checkpoint@1200` or `model:face@12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_from: Option<String>,
    /// The data that a job reads, besides that of `spec`: datasets, and outputs of steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<StepMount>,
    /// The model of a deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The version of a model that is deployed or predicts: an output `model` of a step or `model:face@12`; a
    /// deployment can also publish an output `checkpoint`. Of a data step, what the dataset is made of: the output of a
    /// job, a file of another server, or a version of the dataset that was pushed, such as `digits/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<StepSource>,
    /// The dataset that a data step makes a version of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
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
    /// The name of the component, for people: a reference plugin with its version, a file, or a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// What the plugin of a step of kind `plugin` declares. A server reads it from the component, whatever is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declares: Option<StepDeclarations>,
    /// The other fields of the job's specification, without placeholders; `project` is the plan's.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub spec: Map<String, Value>,
}

/// Data of a step and its mount point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepMount {
    /// A dataset such as `mnist/1`, the output of a job such as `job:mnist-7/output`, or `${steps.STEP.outputs.OUTPUT}`.
    pub from: String,
    /// The mount point, such as `/data`.
    pub to: String,
}

/// Where a step gets what it deploys, predicts with, or makes a dataset of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum StepSource {
    /// A reference, such as `model:face@12`, `job:mnist-7/output/rows`, `digits/3` or `${steps.STEP.outputs.OUTPUT}`.
    Reference(String),
    /// A file of another server.
    Fetch(StepFetch),
    /// A folder of the project, which `saggar pipeline run` pushes. A plan that a server gets has the version instead.
    Folder(StepFolder),
}

/// A folder of the project's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepFolder {
    /// Its path, relative to the project file.
    pub folder: String,
}

/// A file of another server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepFetch {
    /// Its address. The server must be allowed to fetch from there.
    pub url: String,
    /// Its SHA-256, as hexadecimal digits.
    pub sha256: String,
}

/// The inputs and outputs that the plugin of a step declares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StepDeclarations {
    /// The inputs by name. One without a default is required.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, ParameterDeclaration>,
    /// The outputs by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, ParameterDeclaration>,
}

impl PipelineStep {
    /// Returns the type of an output of the step's job, or `None` if there is no such output.
    pub fn output_type(&self, name: &str) -> Option<OutputType> {
        let of_kind = || self.kind.outputs().iter().find(|(output, _)| *output == name).map(|(_, kind)| *kind);
        match (self.kind, &self.declares) {
            (StepKind::Plugin, Some(declares)) => {
                let declared = declares.outputs.get(name).map(|declared| OutputType::of_declared(declared.kind));
                declared.or_else(of_kind)
            }
            (StepKind::Plugin, None) => of_kind().or(Some(OutputType::Undeclared)),
            _ => of_kind(),
        }
    }

    /// Returns the names of the known outputs.
    pub fn output_names(&self) -> Vec<&str> {
        let declared = self.declares.iter().flat_map(|declares| declares.outputs.keys().map(String::as_str));
        let of_kind = self.kind.outputs().iter().map(|(name, _)| *name);
        let mut names: Vec<&str> = declared.chain(of_kind).collect();
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(*name));
        names
    }

    /// Returns the reference that the step's `from` is, if it is one.
    pub fn from_reference(&self) -> Option<&str> {
        match self.from.as_ref()? {
            StepSource::Reference(text) => Some(text),
            StepSource::Fetch(_) | StepSource::Folder(_) => None,
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

    /// Returns whether all conditions of a step are true, for these values of placeholders.
    pub fn condition_state(step: &PipelineStep, values: &dyn TemplateValues) -> ConditionState {
        let mut state = ConditionState::True;
        for condition in &step.when {
            let value = StepCondition::parse(condition).map(|condition| condition.is_true(values));
            match value {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return ConditionState::False,
                Ok(Err(error @ ConditionError::NoValue { .. })) => state = ConditionState::Undecided(error.to_string()),
                Ok(Err(error)) => return ConditionState::Invalid(error.to_string()),
                Err(error) => return ConditionState::Invalid(error.to_string()),
            }
        }
        state
    }
}

/// The conditions of a step, taken together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionState {
    /// All are true.
    True,
    /// One is false.
    False,
    /// None is false, and one depends on a value that does not exist yet: the reason.
    Undecided(String),
    /// One cannot be computed: the reason.
    Invalid(String),
}

/// Returns the name of the parameter if the text is one placeholder of a parameter.
pub(crate) fn parameter_name(text: &str) -> Option<&str> {
    text.strip_prefix("${params.")?.strip_suffix('}').filter(|name| !name.contains('}'))
}
