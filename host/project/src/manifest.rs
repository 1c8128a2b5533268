//! What a project file says, checked: every key is known, every name that is used is there, every limit is above zero and
//! has its unit. Parts that this release only checks are told as remarks.

mod model;
mod pipeline;
mod plugin;
mod queue;
mod run_options;
mod task;

use std::collections::BTreeMap;

use toml::de::DeTable;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::limits::MANIFEST_BYTES_MAX;
use crate::report::{Kind, Report};
use crate::table::Table;

pub use model::{Batch, Cache, KeepAlive, Model, Waiting};
pub use pipeline::{Pipeline, Step, StepAction};
pub use plugin::{Build, Grants, Plugin, World};
pub use queue::{Pool, Queue, Quota};
pub(crate) use run_options::is_device;
pub use run_options::{CAUSES, Checkpoint, Device, Gpu, PRECISIONS, RunOptions, Utilization};
pub use task::{Args, Mode, Mount, MountSource, Task};

/// A project.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// What it is called, and what its tasks take where they say nothing.
    pub project: Project,
    /// Components.
    pub plugins: BTreeMap<String, Plugin>,
    /// What `saggar run --task NAME` runs.
    pub tasks: BTreeMap<String, Task>,
    /// How models are served.
    pub models: BTreeMap<String, Model>,
    /// Where jobs wait.
    pub queues: BTreeMap<String, Queue>,
    /// Where jobs run.
    pub pools: BTreeMap<String, Pool>,
    /// What all jobs together may take.
    pub quota: Quota,
    /// Steps that follow each other.
    pub pipelines: BTreeMap<String, Pipeline>,
    /// What this release reads and checks but does not do yet, in the order of the file.
    pub remarks: Vec<Diagnostic>,
}

/// The project itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Project {
    /// The group that its jobs are numbered in.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// What tasks take where they say nothing.
    pub defaults: RunOptions,
}

impl Manifest {
    /// Reads a file.
    ///
    /// # Errors
    /// Every mistake with its place, first those of TOML itself: a file that is no TOML is not looked at further.
    pub fn parse(text: &str) -> Result<Manifest, Diagnostics> {
        let report = Report::new(text);
        if text.len() > MANIFEST_BYTES_MAX {
            let message = format!("{} bytes: a project file has at most {MANIFEST_BYTES_MAX}", text.len());
            report.mistake(&(0..0), message, "keep data in files of their own");
            return Err(Diagnostics(report.into_parts().0));
        }
        let (document, broken) = DeTable::parse_recoverable(text);
        for error in &broken {
            let span = error.span().unwrap_or(0..0);
            report.mistake(&span, error.message().trim(), "TOML is written as in: [task.train] and name = \"value\"");
        }
        let manifest = match broken.is_empty() {
            true => read(&Table::root(document.get_ref(), &report)),
            false => None,
        };
        let (mistakes, remarks) = report.into_parts();
        match manifest {
            Some(manifest) if mistakes.is_empty() => Ok(Manifest { remarks, ..manifest }),
            _ => Err(Diagnostics(mistakes)),
        }
    }
}

/// The project's name, where the text has one, whatever else is wrong with it: enough to say which job is meant.
pub fn project_name(text: &str) -> Option<String> {
    let (document, _) = DeTable::parse_recoverable(text);
    let report = Report::new(text);
    let table = Table::root(document.get_ref(), &report).item("project")?.table()?;
    table.item("name")?.name()
}

/// Reads every table, then checks what they say about each other.
pub(crate) fn read(root: &Table<'_>) -> Option<Manifest> {
    let version = root.required("manifest", "manifest = 1", |item| match item.integer() {
        Some(1) => Some(()),
        _ => item.refuse("1, the version of the format that this release reads"),
    });
    let project = root.required("project", "name = \"mnist\" below [project]", |item| project(&item.table()?));
    let plugins = root.named("plugin", plugin::read);
    let tasks = root.named("task", task::read);
    let models = root.named("model", model::read);
    let queues = root.named("queue", queue::read);
    let pools = root.named("pool", queue::read_pool);
    let quota = root.optional("quota", |item| queue::read_quota(&item.table()?)).unwrap_or_default();
    let pipelines = root.named("pipeline", |table| pipeline::read(table, &tasks));
    root.finish();
    // Names as they stand in the file: a table with a mistake in it is there all the same.
    let names = |kind: Kind| match root.item(kind.word()).and_then(|item| item.is_table().then(|| item.table())) {
        Some(Some(table)) => table.entries().into_iter().map(|(name, _)| name).chain(built_in(kind)).collect(),
        _ => built_in(kind).collect(),
    };
    root.report().resolve(names);
    version?;
    let remarks = Vec::new();
    Some(Manifest { project: project?, plugins, tasks, models, queues, pools, quota, pipelines, remarks })
}

/// What is there without a table.
fn built_in(kind: Kind) -> impl Iterator<Item = String> {
    let name = match kind {
        Kind::Queue => Some("default"),
        Kind::Pool => Some("any"),
        Kind::Plugin | Kind::Task => None,
    };
    name.map(str::to_owned).into_iter()
}

fn project(table: &Table<'_>) -> Option<Project> {
    let name = table.required("name", "name = \"mnist\"", |item| item.name());
    let description = table.optional("description", |item| item.string());
    let defaults = table.optional("defaults", |item| {
        let table = item.table()?;
        let options = run_options::read(&table);
        table.finish();
        Some(options)
    });
    table.finish();
    Some(Project { name: name?, description, defaults: defaults.unwrap_or_default() })
}

#[cfg(test)]
mod tests;
