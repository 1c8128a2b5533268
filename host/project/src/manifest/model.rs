//! `[model.NAME]`: how a model is served. The keys are those of `model.json`.

use core::time::Duration;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::reading::Item;
use crate::report::Kind;
use crate::table::Table;
use crate::units;

/// How a model is served.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The plugin that it is of.
    pub plugin: Option<String>,
    /// The directory of its versions.
    pub weights: Option<String>,
    /// Paths that it answers.
    pub routes: Vec<String>,
    /// Whether requests that name no model get this one.
    pub default: Option<bool>,
    /// How requests are put together.
    pub batch: Option<Batch>,
    /// How many wait, and how long.
    pub queue: Option<Waiting>,
    /// How long it stays loaded when nobody asks.
    pub keep_alive: Option<KeepAlive>,
    /// Whether it stays loaded where others need the memory.
    pub pin: Option<bool>,
    /// Calls at a time, at least.
    pub instances_min: Option<u32>,
    /// Calls at a time, at most.
    pub instances_max: Option<u32>,
    /// Answers kept for requests that come again.
    pub cache: Option<Cache>,
    /// Files of inputs that are predicted before a version is ready.
    pub warmup: Vec<Value>,
    /// Shares of the requests by alias, in percent.
    pub traffic: BTreeMap<String, u32>,
}

/// How requests are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Items of a batch.
    pub max_items: Option<u32>,
    /// How long a request may wait for company.
    pub max_delay: Option<Duration>,
}

/// How many requests wait, and how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Requests that wait or are computed.
    pub capacity: Option<u32>,
    /// The time a request gets where its client names none.
    pub timeout: Option<Duration>,
}

/// How long a model stays loaded when nobody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// As long as the server runs.
    Forever,
    /// So long; zero unloads it at once.
    For(Duration),
}

/// Answers kept for requests that come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// How much they may take.
    pub max_bytes: u64,
}

pub(super) fn read(table: &Table<'_>) -> Option<Model> {
    let count = |item: &Item<'_>| item.count(0, 1024);
    let model = Model {
        plugin: table.optional("plugin", |item| item.reference(Kind::Plugin)),
        weights: table.optional("weights", |item| item.string()),
        routes: table.optional("routes", |item| item.list(route)).unwrap_or_default(),
        default: table.optional("default", |item| item.boolean()),
        batch: table.optional("batch", |item| batch(&item.table()?)),
        queue: table.optional("queue", |item| waiting(&item.table()?)),
        keep_alive: table
            .optional("keep_alive", |item| item.unit(keep_alive, "a time such as \"5m\" or \"0s\", or \"forever\"")),
        pin: table.optional("pin", |item| item.boolean()),
        instances_min: table.optional("min_instances", count),
        instances_max: table.optional("instances_max", |item| item.count(1, 1024)),
        cache: table.optional("cache", |item| cache(&item.table()?)),
        warmup: table.optional("warmup", |item| item.list(Item::json)).unwrap_or_default(),
        traffic: table.optional("traffic", traffic).unwrap_or_default(),
    };
    remark_what_is_checked_only(table);
    table.finish();
    Some(model)
}

/// Keys that stand for what a server is told elsewhere: they are checked, and it is said where they hold.
fn remark_what_is_checked_only(table: &Table<'_>) {
    let elsewhere = [
        ("plugin", "a version brings its plugin: `saggar dev` and `saggar run` publish one"),
        ("routes", "the plugin itself names the paths that it answers"),
        ("traffic", "shares are given to versions that are there: PUT /api/v1/models/NAME/traffic"),
    ];
    for (key, place) in elsewhere {
        if let Some(item) = table.item(key) {
            item.report.remark(&item.span, format!("{}: this key is checked and not applied; {place}", item.path));
        }
    }
}

fn route(item: &Item<'_>) -> Option<String> {
    match item.text()? {
        path if path.starts_with('/') => Some(path.to_owned()),
        _ => item.refuse("a path such as \"/predict\""),
    }
}

fn batch(table: &Table<'_>) -> Option<Batch> {
    let max_items = table.optional("max_items", |item| item.count(1, u32::from(u16::MAX)));
    let max_delay = table.optional("max_delay", |item| item.time());
    table.finish();
    Some(Batch { max_items, max_delay })
}

fn waiting(table: &Table<'_>) -> Option<Waiting> {
    let capacity = table.optional("capacity", |item| item.count(1, 1 << 20));
    let timeout = table.optional("timeout", |item| item.time());
    table.finish();
    Some(Waiting { capacity, timeout })
}

fn cache(table: &Table<'_>) -> Option<Cache> {
    let max_bytes = table.required("max_bytes", "max_bytes = \"64MiB\"", |item| item.size());
    table.finish();
    Some(Cache { max_bytes: max_bytes? })
}

fn keep_alive(text: &str) -> Result<KeepAlive, crate::error::UnitError> {
    match text {
        "forever" => Ok(KeepAlive::Forever),
        _ => units::duration(text).map(KeepAlive::For),
    }
}

/// Shares in percent that make a hundred.
fn traffic(item: &Item<'_>) -> Option<BTreeMap<String, u32>> {
    let mut shares = BTreeMap::new();
    for (alias, share) in item.table()?.entries() {
        shares.insert(alias, share.count(0, 100)?);
    }
    match shares.values().sum::<u32>() {
        100 => Some(shares),
        sum => item.wrong(format!("the shares make {sum}, expected 100"), "such as { stable = 90, canary = 10 }"),
    }
}
