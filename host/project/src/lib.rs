//! The project file `saggar.toml`, version 1: text in, a checked [`Manifest`] out, or every mistake with its line, its column
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
mod name;
mod reading;
mod reference;
mod report;
mod schema;
mod table;
pub mod units;

pub use config::UserConfig;
pub use cron::Cron;
pub use diagnostic::{Diagnostic, Diagnostics};
pub use error::{CronError, GlobError, ReferenceError, UnitError};
pub use glob::Glob;
pub use manifest::{
    Args, Batch, Build, CAUSES, Cache, Checkpoint, Device, Gpu, Grants, KeepAlive, Manifest, Mode, Model, Mount,
    MountSource, PRECISIONS, Pipeline, Plugin, Pool, Project, Queue, Quota, RunOptions, Step, StepAction, Task,
    Utilization, Waiting, World, project_name,
};
pub use name::is_name;
pub use reference::{Reference, parse_mount};
pub use schema::SCHEMA;

/// The file's name in a project's directory.
pub const PROJECT_FILE: &str = "saggar.toml";
