//! What a step does, and the types of its outputs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::parameter::ParameterType;

/// What a step does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// A training job.
    #[default]
    Train,
    /// A job that predicts for every item of a dataset.
    Predict,
    /// A job whose plugin is a step: a function from typed inputs to typed outputs.
    Plugin,
    /// A job that makes a version of a dataset, from the output of a job or a fetched file.
    Data,
    /// The deployment of a model version, if the model's condition allows it.
    Deploy,
    /// Waits until a person approves or rejects.
    Approve,
    /// Another pipeline of the project file. A plan has no such step.
    Pipeline,
}

impl StepKind {
    /// Every kind, by name.
    pub const NAMES: [(&'static str, StepKind); 7] = [
        ("train", StepKind::Train),
        ("predict", StepKind::Predict),
        ("plugin", StepKind::Plugin),
        ("data", StepKind::Data),
        ("deploy", StepKind::Deploy),
        ("approve", StepKind::Approve),
        ("pipeline", StepKind::Pipeline),
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            StepKind::Train => "train",
            StepKind::Predict => "predict",
            StepKind::Plugin => "plugin",
            StepKind::Data => "data",
            StepKind::Deploy => "deploy",
            StepKind::Approve => "approve",
            StepKind::Pipeline => "pipeline",
        }
    }

    /// Returns whether the step is a job.
    pub fn is_job(self) -> bool {
        match self {
            StepKind::Train | StepKind::Predict | StepKind::Plugin | StepKind::Data => true,
            StepKind::Deploy | StepKind::Approve | StepKind::Pipeline => false,
        }
    }

    /// Returns whether its jobs give the same result if they are done twice, whatever their plugin is.
    pub fn is_repeatable(self) -> bool {
        match self {
            StepKind::Predict | StepKind::Data => true,
            StepKind::Train | StepKind::Plugin | StepKind::Deploy | StepKind::Approve | StepKind::Pipeline => false,
        }
    }

    /// Returns the names and types of the outputs that every step of the kind has. A step of kind `plugin` has those
    /// that its plugin declares too.
    pub fn outputs(self) -> &'static [(&'static str, OutputType)] {
        match self {
            StepKind::Train => &[
                ("model", OutputType::Model),
                ("checkpoint", OutputType::Checkpoint),
                ("output", OutputType::Files),
                ("job", OutputType::Text),
            ],
            StepKind::Predict | StepKind::Plugin => &[("output", OutputType::Files), ("job", OutputType::Text)],
            StepKind::Data => &[("dataset", OutputType::Dataset), ("job", OutputType::Text)],
            StepKind::Deploy => &[("model", OutputType::Model)],
            StepKind::Approve | StepKind::Pipeline => &[],
        }
    }
}

/// The type of a step's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutputType {
    /// A version of a model: `model:face@12`.
    Model,
    /// A checkpoint of a job: `job:mnist-7/checkpoint@1200`.
    Checkpoint,
    /// The files that a job wrote, which can be mounted as data: `job:mnist-7/output`.
    Files,
    /// A file that a job wrote: `job:mnist-7/output/report`.
    File,
    /// A folder or file in the output of a job that can be mounted as data: `job:mnist-7/output/rows`.
    DatasetFiles,
    /// A version of a dataset: `mnist/3`.
    Dataset,
    /// A text.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// An output of a plugin whose declarations are not known yet. It can be of any type.
    Undeclared,
}

impl OutputType {
    /// Returns the type of an output that a plugin declares.
    pub fn of_declared(declared: ParameterType) -> OutputType {
        match declared {
            ParameterType::Integer => OutputType::Integer,
            ParameterType::Number => OutputType::Number,
            ParameterType::Text => OutputType::Text,
            ParameterType::Boolean => OutputType::Boolean,
            ParameterType::File => OutputType::File,
            ParameterType::Dataset => OutputType::DatasetFiles,
            ParameterType::Model => OutputType::Model,
            ParameterType::Checkpoint => OutputType::Checkpoint,
        }
    }

    /// Returns whether the output can be the value of an input that a plugin declares with this type.
    pub fn connects_to(self, input: ParameterType) -> bool {
        match self {
            OutputType::Undeclared => true,
            OutputType::Files | OutputType::DatasetFiles | OutputType::Dataset => input == ParameterType::Dataset,
            OutputType::Model => input == ParameterType::Model,
            OutputType::Checkpoint => input == ParameterType::Checkpoint,
            OutputType::File => input == ParameterType::File,
            OutputType::Text => input == ParameterType::Text,
            OutputType::Integer => ParameterType::Integer.connects_to(input),
            OutputType::Number => input == ParameterType::Number,
            OutputType::Boolean => input == ParameterType::Boolean,
        }
    }

    /// Returns the name in messages.
    pub fn name(self) -> &'static str {
        match self {
            OutputType::Model => "a model",
            OutputType::Checkpoint => "a checkpoint",
            OutputType::Files => "an output",
            OutputType::File => "a file",
            OutputType::DatasetFiles => "a dataset in an output",
            OutputType::Dataset => "a version of a dataset",
            OutputType::Text => "a text",
            OutputType::Integer => "an integer",
            OutputType::Number => "a number",
            OutputType::Boolean => "true or false",
            OutputType::Undeclared => "an output of a plugin that was not read",
        }
    }
}
