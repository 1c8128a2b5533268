//! `[model.NAME]`: settings for serving a model, with the keys of `model.json`.

use core::time::Duration;

use serde_json::Value;

use super::run_options::{MODEL_OPTIMIZATIONS, read_optimizations};
use crate::manifest_table::ManifestTable;
use crate::manifest_value::ManifestValue;
use crate::parse_report::TableKind;
use crate::promotion::PromotionCondition;
use crate::units;

/// Maximum of the limits of a model's instances.
const INSTANCES_MAX: u32 = 1024;

/// Maximum rows of a version of recorded predictions.
const RECORDED_ROWS_MAX: u32 = 1_000_000;

/// Settings for serving a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSection {
    /// Name of the plugin whose new versions `saggar dev` publishes as versions of this model.
    pub plugin: Option<String>,
    /// Directory of the model's versions.
    pub weights: Option<String>,
    /// Whether requests that name no model use this one.
    pub default: Option<bool>,
    /// How requests are batched.
    pub batch: Option<BatchingSettings>,
    /// Limits of the request queue.
    pub queue: Option<RequestQueueSettings>,
    /// How long the model stays loaded without requests.
    pub keep_alive: Option<ModelKeepAlive>,
    /// The condition under which a published version serves. Without one, the newest serves.
    pub promote: Option<PromotionCondition>,
    /// Whether the model stays loaded even if others need the memory.
    pub pin: Option<bool>,
    /// Limits of the number of instances, and therefore of concurrent calls.
    pub instances: InstanceRange,
    /// Cache of responses to repeated requests.
    pub cache: Option<ResponseCacheSettings>,
    /// Files of inputs that are predicted before a version becomes ready.
    pub warmup: Vec<Value>,
    /// The optimizations to leave out, of [`MODEL_OPTIMIZATIONS`].
    pub without: Vec<String>,
    /// How predictions are recorded for a dataset; not at all if `None`.
    pub record: Option<RecordingSettings>,
}

/// How predictions are recorded for the dataset `recorded-NAME`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordingSettings {
    /// The share of predictions, above 0 and at most 1.
    pub share: f64,
    /// The time after which recorded rows become a version.
    pub every: Option<Duration>,
    /// Maximum rows of a version.
    pub rows: Option<u32>,
    /// Maximum bytes of a version.
    pub max_bytes: Option<u64>,
}

/// How requests are batched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchingSettings {
    /// Maximum items of a batch.
    pub max_items: Option<u32>,
    /// Maximum time that a request waits for others.
    pub max_delay: Option<Duration>,
}

/// Limits of the request queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestQueueSettings {
    /// Maximum number of waiting and running requests.
    pub capacity: Option<u32>,
    /// Time limit of a request that gives none.
    pub timeout: Option<Duration>,
}

/// Limits of the number of instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstanceRange {
    /// Minimum number. If it is above 0, the model is never put to sleep.
    pub min: Option<u32>,
    /// Maximum number.
    pub max: Option<u32>,
}

/// How long a model stays loaded without requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKeepAlive {
    /// As long as the server runs.
    Forever,
    /// This long; zero unloads it immediately.
    For(Duration),
}

/// Cache of responses to repeated requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseCacheSettings {
    /// Maximum size of the cache in bytes.
    pub max_bytes: u64,
}

pub(super) fn read_model(table: &ManifestTable<'_>) -> Option<ModelSection> {
    let model = ModelSection {
        plugin: table.optional("plugin", |item| item.table_reference(TableKind::Plugin)),
        weights: table.optional("weights", |item| item.string()),
        default: table.optional("default", |item| item.boolean()),
        batch: table.optional("batch", |item| read_batching(&item.table()?)),
        queue: table.optional("queue", |item| read_request_queue(&item.table()?)),
        keep_alive: table.optional("keep_alive", |item| {
            item.parse_text_or_report(parse_keep_alive, "a time such as \"5m\" or \"0s\", or \"forever\"")
        }),
        promote: table.optional("promote", read_condition),
        pin: table.optional("pin", |item| item.boolean()),
        instances: read_instances(table),
        cache: table.optional("cache", |item| read_response_cache(&item.table()?)),
        warmup: table.optional("warmup", |item| item.list(ManifestValue::to_json)).unwrap_or_default(),
        without: table.optional("without", |item| read_optimizations(item, &MODEL_OPTIMIZATIONS)).unwrap_or_default(),
        record: table.optional("record", read_recording),
    };
    table.report_unsupported("routes", "leave it out: the plugin declares the paths of its model");
    table.report_unsupported("traffic", "set the shares of existing versions with PUT /api/v1/models/NAME/traffic");
    table.report_unknown_keys();
    Some(model)
}

/// Reads a condition. An error names the position within it.
fn read_condition(item: &ManifestValue<'_>) -> Option<PromotionCondition> {
    match item.string()?.parse::<PromotionCondition>() {
        Ok(condition) => Some(condition),
        Err(error) => item.report_error(error.to_string(), "such as \"validation/accuracy >= serving - 0.005\""),
    }
}

/// Reads `instances`, or the keys that it replaces.
fn read_instances(table: &ManifestTable<'_>) -> InstanceRange {
    let min = |item: &ManifestValue<'_>| item.bounded_count(0, INSTANCES_MAX);
    let max = |item: &ManifestValue<'_>| item.bounded_count(1, INSTANCES_MAX);
    let range = table.optional("instances", |item| {
        let table = item.table()?;
        let range = InstanceRange { min: table.optional("min", min), max: table.optional("max", max) };
        table.report_unknown_keys();
        if let InstanceRange { min: Some(min), max: Some(max) } = range
            && min > max
        {
            return item.report_error(format!("min is {min} and max is {max}"), "such as { min = 1, max = 4 }");
        }
        Some(range)
    });
    let before = InstanceRange {
        min: table.optional("min_instances", |item| renamed(item, "min", min(item)?)),
        max: table.optional("instances_max", |item| renamed(item, "max", max(item)?)),
    };
    let range = range.unwrap_or_default();
    InstanceRange { min: range.min.or(before.min), max: range.max.or(before.max) }
}

/// Adds a warning about a key that is now a part of `instances`. Returns its value.
fn renamed(item: &ManifestValue<'_>, key: &str, value: u32) -> Option<u32> {
    let message = format!(
        "{}: now `instances = {{ {key} = {value} }}`; the old key will not work in the next version",
        item.path
    );
    item.report.add_warning(&item.span, message);
    Some(value)
}

fn read_batching(table: &ManifestTable<'_>) -> Option<BatchingSettings> {
    let max_items = table.optional("max_items", |item| item.bounded_count(1, u32::from(u16::MAX)));
    let max_delay = table.optional("max_delay", |item| item.duration());
    table.report_unknown_keys();
    Some(BatchingSettings { max_items, max_delay })
}

fn read_request_queue(table: &ManifestTable<'_>) -> Option<RequestQueueSettings> {
    let capacity = table.optional("capacity", |item| item.bounded_count(1, 1 << 20));
    let timeout = table.optional("timeout", |item| item.duration());
    table.report_unknown_keys();
    Some(RequestQueueSettings { capacity, timeout })
}

fn read_response_cache(table: &ManifestTable<'_>) -> Option<ResponseCacheSettings> {
    let max_bytes = table.required("max_bytes", "max_bytes = \"64MiB\"", |item| item.size_bytes());
    table.report_unknown_keys();
    Some(ResponseCacheSettings { max_bytes: max_bytes? })
}

/// Reads a share such as `"1%"`, or a table with a share.
fn read_recording(item: &ManifestValue<'_>) -> Option<RecordingSettings> {
    let share = |item: &ManifestValue<'_>| {
        item.parse_text_or_report(units::parse_share, "a share above 0 with a percent sign, such as \"1%\" or \"0.5%\"")
    };
    if !item.is_table() {
        return Some(RecordingSettings { share: share(item)?, every: None, rows: None, max_bytes: None });
    }
    let table = item.table()?;
    let settings = RecordingSettings {
        share: table.required("share", "share = \"1%\"", share).unwrap_or(1.0),
        every: table.optional("every", |item| item.duration()),
        rows: table.optional("rows", |item| item.bounded_count(1, RECORDED_ROWS_MAX)),
        max_bytes: table.optional("max_bytes", |item| item.size_bytes()),
    };
    table.report_unknown_keys();
    Some(settings)
}

fn parse_keep_alive(text: &str) -> Result<ModelKeepAlive, crate::error::UnitError> {
    match text {
        "forever" => Ok(ModelKeepAlive::Forever),
        _ => units::parse_duration(text).map(ModelKeepAlive::For),
    }
}
