//! The project file `saggar.toml`, version 1: text in, a checked [`ProjectManifest`] out, or every mistake with its line, its column
//! and how to mend it. Units, cron lines and file patterns are read here too, so that the command line, the file and the
//! scheduler mean the same by them.
//!
//! Nothing here does I/O or reads a clock: files are found, and times are asked for, by the callers. What a job is asked to
//! do in the end is `jobs::JobSpec`; merging a task with flags and the environment is the command line's.

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
mod parse_report;
mod reference;
mod schema;
pub mod units;

pub use config::UserConfig;
pub use cron::CronSchedule;
pub use diagnostic::{Diagnostic, Diagnostics};
pub use error::{CronError, GlobError, ReferenceError, UnitError};
pub use glob::Glob;
pub use manifest::{
    BatchingSettings, CheckpointPolicy, DeviceRequest, GpuRequest, MinimumUtilization, ModelKeepAlive, ModelSection,
    MountSource, PRECISIONS, PipelineSection, PipelineStep, PluginBuildCommand, PluginGrants, PluginSection,
    PluginWorldKind, PoolSection, ProjectManifest, ProjectQuota, ProjectSection, QueueSection, RETRY_CAUSES,
    RequestQueueSettings, ResponseCacheSettings, RunOptions, StepAction, TaskArguments, TaskMode, TaskMount,
    TaskSection, project_name,
};
pub use name::is_valid_name;
pub use reference::{WeightsReference, parse_mount};
pub use schema::SCHEMA;

/// The file's name in a project's directory.
pub const PROJECT_FILE: &str = "saggar.toml";
