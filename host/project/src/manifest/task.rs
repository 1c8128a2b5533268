//! `[task.NAME]`: the template of a job.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::cron::Cron;
use crate::reading::Item;
use crate::reference::{self, Reference, parse_mount};
use crate::report::Kind;
use crate::table::Table;

use super::run_options::{self, RunOptions};

/// What the plugin is given.
pub type Args = Map<String, Value>;

/// The template of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Which plugin; a name of the file's plugins.
    pub plugin: String,
    /// What is wanted of it.
    pub mode: Mode,
    /// What the plugin is given.
    pub args: Args,
    /// What it reads.
    pub data: Vec<Mount>,
    /// What its jobs are for, for people.
    pub message: Option<String>,
    /// Where its weights come from.
    pub init_from: Option<String>,
    /// Names of secrets that it may read.
    pub secrets: Vec<String>,
    /// When it starts by itself, in UTC.
    pub schedule: Option<Cron>,
    /// How it runs.
    pub run: RunOptions,
}

/// What a run is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A training.
    #[default]
    Job,
    /// The model that it publishes.
    Serve,
}

/// Data in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// What is read.
    pub source: MountSource,
    /// Where the plugin finds it: `/data`.
    pub at: String,
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSource {
    /// A dataset.
    Dataset {
        /// Its name.
        dataset: String,
        /// Its version; the newest where there is none.
        version: Option<u64>,
    },
    /// What a job wrote.
    Job {
        /// The job.
        job: String,
        /// The file or directory; all where there is none.
        path: Option<String>,
    },
}

pub(super) fn read(table: &Table<'_>) -> Option<Task> {
    let plugin = table.required("plugin", "plugin = \"NAME\"", |item| item.reference(Kind::Plugin));
    let mode = table.optional("mode", |item| item.choice(&[("job", Mode::Job), ("serve", Mode::Serve)]));
    let args = table.optional("args", |item| Some(item.table()?.any().into_iter().collect()));
    let data = table.optional("data", mounts).unwrap_or_default();
    let message = table.optional("message", |item| item.string());
    let weights = "job:NAME-N, job:NAME-N/checkpoint@STEP or model:NAME@VERSION";
    let init_from = table.optional("init_from", |item| {
        item.unit(Reference::parse, weights)?;
        item.string()
    });
    let secrets = table.optional("secrets", |item| item.list(Item::string)).unwrap_or_default();
    let schedule = table.optional("schedule", schedule);
    let run = run_options::read(table);
    table.finish();
    Some(Task {
        plugin: plugin?,
        mode: mode.unwrap_or_default(),
        args: args.unwrap_or_default(),
        data,
        message,
        init_from,
        secrets,
        schedule,
        run,
    })
}

/// `[{ from = "mnist/1", to = "/data" }]`, or in short `["mnist/1:/data"]`.
fn mounts(item: &Item<'_>) -> Option<Vec<Mount>> {
    let mut places = BTreeSet::new();
    let mut mounts = Vec::new();
    for item in item.items()? {
        let read = if item.is_table() { mount(&item) } else { short(&item) };
        let Some(mount) = read else { continue };
        if !places.insert(mount.at.clone()) {
            let message = format!("two datasets are to be mounted at {}", mount.at);
            item.wrong::<()>(message, "give each its own place: { from = \"other/1\", to = \"/other\" }");
        }
        mounts.push(mount);
    }
    Some(mounts)
}

fn short(item: &Item<'_>) -> Option<Mount> {
    let text = item.text()?;
    parse_mount(text).or_else(|error| item.wrong(error, "write such as \"mnist/1:/data\"").ok_or(())).ok()
}

fn mount(item: &Item<'_>) -> Option<Mount> {
    let table = item.table()?;
    let from = table.required("from", "from = \"mnist/1\"", |item| item.text());
    let to = table.optional("to", |item| item.text()).unwrap_or("/data");
    table.finish();
    let read = reference::mount(from?, to);
    read.or_else(|error| item.wrong(error, "write such as { from = \"mnist/1\", to = \"/data\" }").ok_or(())).ok()
}

fn schedule(item: &Item<'_>) -> Option<Cron> {
    let text = item.text()?;
    match Cron::parse(text) {
        Ok(cron) => Some(cron),
        Err(error) => {
            // Into the quotes, which a text without escapes has one of.
            let start = item.span.start + 1 + error.offset();
            let message = format!("{}: {text:?} is no cron line: {error}", item.path);
            let hint = "write minute hour day-of-month month day-of-week in UTC, such as \"15 23 * * *\"";
            item.report.mistake(&(start..item.span.end), message, hint);
            None
        }
    }
}
