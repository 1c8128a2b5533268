//! The checked content of a project file: every key is known, every referenced name exists, every limit is above zero
//! and has a unit.

mod kubernetes_pool;
mod model;
mod pipeline;
mod plugin;
mod queue;
mod run_options;
mod slurm_pool;
mod sweep;
mod task;

use std::collections::BTreeMap;

use toml::de::DeTable;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::limits::MANIFEST_BYTES_MAX;
use crate::manifest_table::ManifestTable;
use crate::parse_report::{ParseReport, TableKind};

pub use kubernetes_pool::KubernetesPoolSection;
pub use model::{
    BatchingSettings, InstanceRange, ModelKeepAlive, ModelSection, RecordingSettings, RequestQueueSettings,
    ResponseCacheSettings,
};
pub use pipeline::{ExpandedStep, PipelineSection, PipelineStepSection};
pub use plugin::{PluginBuildCommand, PluginSection, REFERENCE_PLUGINS};
pub use queue::{PoolSection, ProjectQuota, QueueSection};
pub(crate) use run_options::is_device_name;
pub use run_options::{
    CheckpointPolicy, DeviceRequest, GpuRequest, JOB_OPTIMIZATIONS, MODEL_OPTIMIZATIONS, MinimumUtilization,
    PRECISIONS, RETRY_CAUSES, RunOptions,
};
pub use slurm_pool::SlurmPoolSection;
pub use sweep::{SWEEP_METHODS, SweepSection};
pub use task::{TaskArguments, TaskMode, TaskSection};

/// A project.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectManifest {
    /// Name, description and defaults of the project.
    pub project: ProjectSection,
    /// Plugins by name.
    pub plugins: BTreeMap<String, PluginSection>,
    /// Tasks by name, for `saggar run --task NAME`.
    pub tasks: BTreeMap<String, TaskSection>,
    /// Searches for parameters by name, for `saggar sweep --sweep NAME`.
    pub sweeps: BTreeMap<String, SweepSection>,
    /// Serving settings of models, by name.
    pub models: BTreeMap<String, ModelSection>,
    /// Queues by name, in which jobs wait.
    pub queues: BTreeMap<String, QueueSection>,
    /// Pools by name, on which jobs run.
    pub pools: BTreeMap<String, PoolSection>,
    /// Pipelines by name.
    pub pipelines: BTreeMap<String, PipelineSection>,
    /// Limits of all jobs together.
    pub quota: ProjectQuota,
    /// Warnings about keys that have another name now.
    pub warnings: Vec<Diagnostic>,
}

/// The `[project]` table.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectSection {
    /// The name of the project, after which its jobs are numbered.
    pub name: String,
    /// A description for users.
    pub description: Option<String>,
    /// Defaults of tasks.
    pub defaults: RunOptions,
}

impl ProjectManifest {
    /// Parses a file.
    ///
    /// # Errors
    /// Every mistake with its position, TOML syntax errors first. A file with invalid TOML is not checked further.
    pub fn parse(text: &str) -> Result<ProjectManifest, Diagnostics> {
        let report = ParseReport::new(text);
        if text.len() > MANIFEST_BYTES_MAX {
            let message = format!("{} bytes: a project file has at most {MANIFEST_BYTES_MAX}", text.len());
            report.add_error(&(0..0), message, "keep data in separate files");
            return Err(Diagnostics(report.into_mistakes()));
        }
        let (document, broken) = DeTable::parse_recoverable(text);
        for error in &broken {
            let span = error.span().unwrap_or(0..0);
            report.add_error(&span, error.message().trim(), "TOML is written as in: [task.train] and name = \"value\"");
        }
        let manifest = match broken.is_empty() {
            true => read_manifest(&ManifestTable::root(document.get_ref(), &report)),
            false => None,
        };
        let mistakes = report.into_mistakes();
        match manifest {
            Some(manifest) if mistakes.is_empty() => Ok(manifest),
            _ => Err(Diagnostics(mistakes)),
        }
    }
}

/// Returns the project's name if the text contains one, even if other parts are invalid: enough to identify its jobs.
pub fn project_name(text: &str) -> Option<String> {
    let (document, _) = DeTable::parse_recoverable(text);
    let report = ParseReport::new(text);
    let table = ManifestTable::root(document.get_ref(), &report).get("project")?.table()?;
    table.get("name")?.name()
}

/// Reads every table, then checks the references between them.
pub(crate) fn read_manifest(root: &ManifestTable<'_>) -> Option<ProjectManifest> {
    let version = root.required("manifest", "manifest = 1", |item| match item.integer() {
        Some(1) => Some(()),
        _ => item.report_expected("1, the version of the format that this release reads"),
    });
    let project = root.required("project", "name = \"mnist\" below [project]", |item| read_project(&item.table()?));
    let plugins = root.named_tables("plugin", plugin::read_plugin);
    let tasks = root.named_tables("task", task::read_task);
    let sweeps = root.named_tables("sweep", sweep::read_sweep);
    let models = root.named_tables("model", model::read_model);
    let queues = root.named_tables("queue", queue::read_queue);
    let pools = root.named_tables("pool", queue::read_pool);
    let quota = root.optional("quota", |item| queue::read_quota(&item.table()?)).unwrap_or_default();
    let pipelines = root.named_tables("pipeline", |table| Some(pipeline::read_pipeline(table)));
    root.report_unknown_keys();
    // Names from the file itself: a table with a mistake still exists for references.
    let names = |kind: TableKind| match root
        .get(kind.header_word())
        .and_then(|item| item.is_table().then(|| item.table()))
    {
        Some(Some(table)) => table.entries().into_iter().map(|(name, _)| name).chain(built_in_names(kind)).collect(),
        _ => built_in_names(kind).collect(),
    };
    let notebooks = tasks.iter().filter(|(_, task)| task.mode == TaskMode::Notebook).map(|(name, _)| name.as_str());
    root.report().resolve_references(names, &notebooks.collect());
    let defaults = project.as_ref().map(|project| project.defaults.clone()).unwrap_or_default();
    let pipelines = pipeline::check_pipelines(root.report(), pipelines, &tasks, &defaults);
    version?;
    let warnings = root.report().take_warnings();
    Some(ProjectManifest {
        project: project?,
        plugins,
        tasks,
        sweeps,
        models,
        queues,
        pools,
        pipelines,
        quota,
        warnings,
    })
}

/// Returns the names that exist without a table.
fn built_in_names(kind: TableKind) -> impl Iterator<Item = String> {
    let name = match kind {
        TableKind::Queue => Some("default"),
        TableKind::Pool => Some("any"),
        TableKind::Plugin | TableKind::Task | TableKind::Pipeline => None,
    };
    name.map(str::to_owned).into_iter()
}

fn read_project(table: &ManifestTable<'_>) -> Option<ProjectSection> {
    let name = table.required("name", "name = \"mnist\"", |item| item.name());
    let description = table.optional("description", |item| item.string());
    let defaults = table.optional("defaults", |item| {
        let table = item.table()?;
        let options = run_options::read_run_options(&table);
        table.report_unknown_keys();
        Some(options)
    });
    table.report_unknown_keys();
    Some(ProjectSection { name: name?, description, defaults: defaults.unwrap_or_default() })
}

#[cfg(test)]
mod tests;
