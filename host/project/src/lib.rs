//! The parser of the project file `saggar.toml`, version 1. It returns a checked [`ProjectManifest`], or every mistake
//! with its line, column and a hint. Units, cron lines and file patterns are parsed here too, so that the command line,
//! the file and the scheduler interpret them in the same way.
//!
//! This crate does no I/O and reads no clock: callers read files and pass times. The final description of a job is
//! `jobs::JobSpec`; the command line merges a task with flags and the environment.

mod config;
mod cron;
mod diagnostic;
mod error;
mod glob;
pub mod limits;
mod manifest;
mod manifest_table;
mod manifest_value;
mod name;
mod parameter;
mod parse_report;
mod pipeline;
mod promotion;
mod reference;
mod schema;
pub mod units;

pub use config::{TopSection, UserConfig};
pub use cron::CronSchedule;
pub use diagnostic::{Diagnostic, Diagnostics};
pub use error::{CronError, GlobError, ReferenceError, UnitError};
pub use glob::Glob;
pub use manifest::{
    BatchingSettings, CheckpointPolicy, DeviceRequest, ExpandedStep, GpuRequest, InstanceRange, JOB_OPTIMIZATIONS,
    KubernetesPoolSection, MODEL_OPTIMIZATIONS, MinimumUtilization, ModelKeepAlive, ModelSection, PRECISIONS,
    PipelineSection, PipelineStepSection, PluginBuildCommand, PluginSection, PoolSection, ProjectManifest,
    ProjectQuota, ProjectSection, QueueSection, REFERENCE_PLUGINS, RETRY_CAUSES, RecordingSettings,
    RequestQueueSettings, ResponseCacheSettings, RunOptions, SWEEP_METHODS, SlurmPoolSection, SweepSection,
    TaskArguments, TaskMode, TaskSection, project_name,
};
pub use name::{LABEL_RULE, is_label, is_valid_name};
pub use parameter::{ParameterDeclaration, ParameterType};
pub use pipeline::{
    ConditionError, ConditionState, OutputType, ParameterError, PipelinePlan, PipelineStep, PlaceholderReference,
    PlanMistake, StepDeclarations, StepDependencies, StepDependency, StepFetch, StepFolder, StepKind, StepMount,
    StepSource, TemplateError, TemplateValues, TextTemplate, bind_parameters, parse_parameter_text, render_template,
};
pub use promotion::{PromotionCondition, PromotionParseError};
pub use reference::{MountSource, TaskMount, WeightsReference, parse_mount};
pub use schema::SCHEMA;

/// Name of the project file in a project's directory.
pub const PROJECT_FILE: &str = "saggar.toml";
