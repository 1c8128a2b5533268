//! `[task.NAME]`: the template of a job.

use core::time::Duration;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::cron::CronSchedule;
use crate::manifest_table::ManifestTable;
use crate::manifest_value::ManifestValue;
use crate::parse_report::TableKind;
use crate::reference::{TaskMount, WeightsReference, parse_mount, parse_mount_at};

use super::run_options::{self, RunOptions};

/// The plugin's parameters.
pub type TaskArguments = Map<String, Value>;

/// The template of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSection {
    /// Name of the plugin's table in the file; `None` exactly for a notebook, which runs no plugin.
    pub plugin: Option<String>,
    /// The purpose of its runs.
    pub mode: TaskMode,
    /// The plugin's parameters.
    pub args: TaskArguments,
    /// Datasets and outputs that it reads.
    pub data: Vec<TaskMount>,
    /// A description of its jobs for users.
    pub message: Option<String>,
    /// The weights that it starts from.
    pub init_from: Option<String>,
    /// Names of secrets that it can read.
    pub secrets: Vec<String>,
    /// When it starts automatically, in UTC.
    pub schedule: Option<CronSchedule>,
    /// How long a notebook can be idle before it stops.
    pub idle_timeout: Option<Duration>,
    /// Its run options.
    pub run: RunOptions,
}

/// The purpose of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskMode {
    /// Train.
    #[default]
    Job,
    /// Train and serve the published model.
    Serve,
    /// Run JupyterLab.
    Notebook,
}

/// The modes by their names.
const MODES: [(&str, TaskMode); 3] =
    [("job", TaskMode::Job), ("serve", TaskMode::Serve), ("notebook", TaskMode::Notebook)];

/// The keys of a task that say something about a training or a plugin, which a notebook does not run.
const NOT_OF_NOTEBOOKS: [&str; 19] = [
    "plugin",
    "args",
    "init_from",
    "schedule",
    "device",
    "gpu",
    "seed",
    "gpu_memory",
    "queue",
    "preemptible",
    "checkpoint",
    "non_finite",
    "precision",
    "without",
    "utilization",
    "replicas",
    "hosts",
    "shards",
    "record",
];

pub(super) fn read_task(table: &ManifestTable<'_>) -> Option<TaskSection> {
    let mode = table.optional("mode", |item| item.choice(&MODES)).unwrap_or_default();
    let read_plugin = |item: &ManifestValue<'_>| item.table_reference(TableKind::Plugin);
    let plugin = match mode {
        TaskMode::Notebook => table.optional("plugin", read_plugin),
        TaskMode::Job | TaskMode::Serve => table.required("plugin", "plugin = \"NAME\"", read_plugin),
    };
    let args = table.optional("args", |item| Some(item.table()?.to_json_map().into_iter().collect()));
    let data = table.optional("data", read_mounts).unwrap_or_default();
    let message = table.optional("message", |item| item.string());
    let weights = "job:NAME-N, job:NAME-N/checkpoint@STEP or model:NAME@VERSION";
    let init_from = table.optional("init_from", |item| {
        item.parse_text_or_report(WeightsReference::parse, weights)?;
        item.string()
    });
    let secrets = table.optional("secrets", |item| item.list(ManifestValue::string)).unwrap_or_default();
    let schedule = table.optional("schedule", read_schedule);
    let idle_timeout = table.optional("idle_timeout", |item| item.duration());
    let run = run_options::read_run_options(table);
    report_keys_of_other_modes(table, mode);
    table.report_unknown_keys();
    if mode != TaskMode::Notebook && plugin.is_none() {
        return None;
    }
    Some(TaskSection {
        plugin,
        mode,
        args: args.unwrap_or_default(),
        data,
        message,
        init_from,
        secrets,
        schedule,
        idle_timeout,
        run,
    })
}

/// Reports the keys that have no meaning in the task's mode.
fn report_keys_of_other_modes(table: &ManifestTable<'_>, mode: TaskMode) {
    let hint = |key: &str| format!("remove {key}, or the line with mode");
    match mode {
        TaskMode::Notebook => {
            for key in NOT_OF_NOTEBOOKS {
                table.report_if_present(key, "a notebook runs no plugin and trains nothing", &hint(key));
            }
        }
        TaskMode::Job | TaskMode::Serve => {
            let hint = "add mode = \"notebook\", or remove idle_timeout; max_runtime limits the time of a job";
            table.report_if_present("idle_timeout", "only notebooks stop when they are idle", hint);
        }
    }
}

/// Reads mounts: `[{ from = "mnist/1", to = "/data" }]`, or in short `["mnist/1:/data"]`.
fn read_mounts(item: &ManifestValue<'_>) -> Option<Vec<TaskMount>> {
    let mut places = BTreeSet::new();
    let mut mounts = Vec::new();
    for item in item.items()? {
        let read = if item.is_table() { read_mount(&item) } else { read_short_mount(&item) };
        let Some(mount) = read else { continue };
        if !places.insert(mount.at.clone()) {
            let message = format!("two datasets are mounted at {}", mount.at);
            item.report_error::<()>(
                message,
                "give each a different mount point: { from = \"other/1\", to = \"/other\" }",
            );
        }
        mounts.push(mount);
    }
    Some(mounts)
}

fn read_short_mount(item: &ManifestValue<'_>) -> Option<TaskMount> {
    let text = item.text()?;
    parse_mount(text).or_else(|error| item.report_error(error, "write such as \"mnist/1:/data\"").ok_or(())).ok()
}

fn read_mount(item: &ManifestValue<'_>) -> Option<TaskMount> {
    let table = item.table()?;
    let from = table.required("from", "from = \"mnist/1\"", |item| item.text());
    let to = table.optional("to", |item| item.text()).unwrap_or("/data");
    table.report_unknown_keys();
    let read = parse_mount_at(from?, to);
    read.or_else(|error| item.report_error(error, "write such as { from = \"mnist/1\", to = \"/data\" }").ok_or(()))
        .ok()
}

pub(super) fn read_schedule(item: &ManifestValue<'_>) -> Option<CronSchedule> {
    let text = item.text()?;
    match CronSchedule::parse(text) {
        Ok(cron) => Some(cron),
        Err(error) => {
            // The position is inside the quotes: a text without escapes has one quote before it.
            let start = item.span.start + 1 + error.offset();
            let message = format!("{}: invalid cron line {text:?}: {error}", item.path);
            let hint = "write minute hour day-of-month month day-of-week in UTC, such as \"15 23 * * *\"";
            item.report.add_error(&(start..item.span.end), message, hint);
            None
        }
    }
}
