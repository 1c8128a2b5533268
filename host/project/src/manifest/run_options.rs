//! Run options of a job: the keys that a task, the project's defaults and the command line have in common. An option is
//! `None` if it is not given, so that the more specific source wins.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::limits::{AUTO_EXTEND_MAX, KEEP_LAST_MAX, LABELS_MAX, PRIORITY_MAX, REPLICAS_MAX, RETRY_MAX, SLOTS_MAX};
use crate::manifest_table::ManifestTable;
use crate::manifest_value::ManifestValue;
use crate::name::{LABEL_RULE, is_label};
use crate::parse_report::TableKind;
use crate::units::{self, TimeOrSteps};

/// Run options of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunOptions {
    /// The device that it computes on.
    pub device: Option<DeviceRequest>,
    /// The labels that its host must have.
    pub labels: Option<BTreeMap<String, String>>,
    /// Seed of all random numbers.
    pub seed: Option<u64>,
    /// Host memory limit in bytes.
    pub memory: Option<u64>,
    /// Device memory limit in bytes.
    pub gpu_memory: Option<u64>,
    /// The queue in which it waits.
    pub queue: Option<String>,
    /// Priority from 0 to 100; higher runs first.
    pub priority: Option<u32>,
    /// Whether a job with a higher priority can preempt it.
    pub preemptible: Option<bool>,
    /// Number of extra attempts.
    pub retry: Option<u32>,
    /// The causes of failure that are retried, as named in the job's specification.
    pub retry_on: Option<Vec<String>>,
    /// Time limit of all attempts together.
    pub max_runtime: Option<Duration>,
    /// Maximum number of automatic extensions of `max_runtime`.
    pub auto_extend: Option<u32>,
    /// Time limit of each attempt.
    pub max_attempt_runtime: Option<Duration>,
    /// When checkpoints are taken, and which are kept.
    pub checkpoint: Option<CheckpointPolicy>,
    /// What happens if the loss or a variable is infinite or NaN: `stop`, `skip` or `continue`.
    pub non_finite: Option<String>,
    /// Precision of a training: `float32` or `mixed`.
    pub precision: Option<String>,
    /// The optimizations to leave out, of [`JOB_OPTIMIZATIONS`].
    pub without: Option<Vec<String>>,
    /// Minimum utilization of its device.
    pub utilization: Option<MinimumUtilization>,
    /// The group of jobs that it is compared with.
    pub experiment: Option<String>,
    /// Number of worker processes that train together.
    pub replicas: Option<u32>,
    /// Number of hosts that the worker processes are divided among.
    pub hosts: Option<u32>,
    /// Number of shards of each batch, independent of the number of replicas.
    pub shards: Option<u32>,
    /// Whether a training records its host calls, so that its steps can be replayed.
    pub record: Option<bool>,
}

impl RunOptions {
    /// Returns these options, with those of `below` for the ones that are not given.
    pub fn or_defaults(self, below: RunOptions) -> RunOptions {
        let checkpoint = match (self.checkpoint, below.checkpoint) {
            (Some(here), Some(below)) => Some(CheckpointPolicy {
                every: here.every.or(below.every),
                keep_last: here.keep_last.or(below.keep_last),
                keep_best: here.keep_best.or(below.keep_best),
            }),
            (here, below) => here.or(below),
        };
        RunOptions {
            device: self.device.or(below.device),
            labels: self.labels.or(below.labels),
            seed: self.seed.or(below.seed),
            memory: self.memory.or(below.memory),
            gpu_memory: self.gpu_memory.or(below.gpu_memory),
            queue: self.queue.or(below.queue),
            priority: self.priority.or(below.priority),
            preemptible: self.preemptible.or(below.preemptible),
            retry: self.retry.or(below.retry),
            retry_on: self.retry_on.or(below.retry_on),
            max_runtime: self.max_runtime.or(below.max_runtime),
            auto_extend: self.auto_extend.or(below.auto_extend),
            max_attempt_runtime: self.max_attempt_runtime.or(below.max_attempt_runtime),
            checkpoint,
            non_finite: self.non_finite.or(below.non_finite),
            precision: self.precision.or(below.precision),
            without: self.without.or(below.without),
            utilization: self.utilization.or(below.utilization),
            experiment: self.experiment.or(below.experiment),
            replicas: self.replicas.or(below.replicas),
            hosts: self.hosts.or(below.hosts),
            shards: self.shards.or(below.shards),
            record: self.record.or(below.record),
        }
    }
}

/// The device of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceRequest {
    /// A device by name: `cpu`, `vulkan:0`.
    Named(String),
    /// A device by requirement.
    Gpu(GpuRequest),
}

/// A job's requirement for a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GpuRequest {
    /// Fails without a GPU.
    Required,
    /// Uses a GPU if one is available.
    Preferred,
    /// Computes on the CPU.
    None,
    /// Uses this many slots of a GPU, or this share of one slot.
    Slots(f64),
}

/// When checkpoints are taken, and which are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointPolicy {
    /// Interval between checkpoints.
    pub every: Option<TimeOrSteps>,
    /// Number of newest checkpoints to keep.
    pub keep_last: Option<u32>,
    /// The metric whose best checkpoint is kept, optionally with a mode: `loss`, `min:loss`, `max:bleu`.
    pub keep_best: Option<String>,
}

/// The minimum share of a time window that a job must keep its device busy. A job below it is stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MinimumUtilization {
    /// The share, above 0 and at most 1.
    pub min_gpu: f64,
    /// Length of the window.
    pub window: Duration,
}

/// The causes of failure that can be retried.
pub const RETRY_CAUSES: [&str; 6] = ["preempted", "device-lost", "worker-lost", "host-restart", "non-finite", "error"];
const NON_FINITE_POLICIES: [&str; 3] = ["stop", "skip", "continue"];
/// The precisions of a training.
pub const PRECISIONS: [&str; 2] = ["float32", "mixed"];

/// The optimizations of programs, which jobs and models can leave out.
const PROGRAM_OPTIMIZATIONS: [&str; 15] = [
    "fusion",
    "fused-matmul",
    "relu-max-pool",
    "relu-slope",
    "channels-last",
    "in-place",
    "winograd",
    "direct-convolution",
    "prepack",
    "one-hot-sum",
    "tiles",
    "split-k",
    "subgroups",
    "cooperative-matrices",
    "autotune",
];

/// The optimizations that a job can leave out.
pub const JOB_OPTIMIZATIONS: [&str; 18] =
    with_program_optimizations(["shader-cache", "component-cache", "dataset-residency"]);

/// The optimizations that a model can leave out.
pub const MODEL_OPTIMIZATIONS: [&str; 19] =
    with_program_optimizations(["program-cache", "shared-instances", "batching", "response-cache"]);

/// Returns the optimizations of programs, followed by `others`.
const fn with_program_optimizations<const OTHERS: usize, const ALL: usize>(
    others: [&'static str; OTHERS],
) -> [&'static str; ALL] {
    assert!(ALL == PROGRAM_OPTIMIZATIONS.len() + OTHERS);
    let mut all = [""; ALL];
    let mut at = 0;
    while at < ALL {
        let is_of_programs = at < PROGRAM_OPTIMIZATIONS.len();
        all[at] = if is_of_programs { PROGRAM_OPTIMIZATIONS[at] } else { others[at - PROGRAM_OPTIMIZATIONS.len()] };
        at += 1;
    }
    all
}

/// Reads the keys. The caller reports unknown keys of `table`, because it can read more keys.
pub(super) fn read_run_options(table: &ManifestTable<'_>) -> RunOptions {
    RunOptions {
        device: read_device(table),
        labels: table.optional("labels", read_labels),
        seed: table.optional("seed", |item| item.unsigned()),
        memory: table.optional("memory", |item| item.size_bytes()),
        gpu_memory: table.optional("gpu_memory", |item| item.size_bytes()),
        queue: table.optional("queue", |item| item.table_reference(TableKind::Queue)),
        priority: table.optional("priority", |item| item.bounded_count(0, PRIORITY_MAX)),
        preemptible: table.optional("preemptible", |item| item.boolean()),
        retry: table.optional("retry", |item| item.bounded_count(0, RETRY_MAX)),
        retry_on: table.optional("retry_on", read_retry_causes),
        max_runtime: table.optional("max_runtime", |item| item.duration()),
        auto_extend: table.optional("auto_extend", |item| item.bounded_count(0, AUTO_EXTEND_MAX)),
        max_attempt_runtime: table.optional("max_attempt_runtime", |item| item.duration()),
        checkpoint: table.optional("checkpoint", |item| read_checkpoint_policy(&item.table()?)),
        non_finite: table
            .optional("non_finite", |item| item.choice(&NON_FINITE_POLICIES.map(|it| (it, it))).map(str::to_owned)),
        precision: table.optional("precision", |item| item.choice(&PRECISIONS.map(|it| (it, it))).map(str::to_owned)),
        without: table.optional("without", |item| read_optimizations(item, &JOB_OPTIMIZATIONS)),
        utilization: table.optional("utilization", |item| read_utilization(&item.table()?)),
        experiment: table.optional("experiment", |item| item.name()),
        replicas: table.optional("replicas", |item| item.bounded_count(1, REPLICAS_MAX)),
        hosts: table.optional("hosts", |item| item.bounded_count(1, REPLICAS_MAX)),
        shards: table.optional("shards", |item| item.bounded_count(1, REPLICAS_MAX)),
        record: table.optional("record", |item| item.boolean()),
    }
}

/// Reads labels of hosts: `{ gpu = "a100" }`.
pub(super) fn read_labels(item: &ManifestValue<'_>) -> Option<BTreeMap<String, String>> {
    let entries = item.table()?.entries();
    if entries.len() > LABELS_MAX {
        return item.report_expected(format_args!("at most {LABELS_MAX} labels"));
    }
    let mut labels = BTreeMap::new();
    for (name, value) in entries {
        let text = value.text()?;
        if !is_label(&name) || !is_label(text) {
            return value.report_expected(format_args!("a label such as gpu = \"a100\": {LABEL_RULE}"));
        }
        labels.insert(name, text.to_owned());
    }
    Some(labels)
}

fn read_device(table: &ManifestTable<'_>) -> Option<DeviceRequest> {
    let named = table.optional("device", |item| match item.text()? {
        device if is_device_name(device) => Some((device.to_owned(), item.clone())),
        _ => item.report_expected("auto, cpu, gpu or a device's name such as vulkan:0"),
    });
    let gpu = table.optional("gpu", read_gpu);
    match (named, gpu) {
        (Some((_, item)), Some(_)) => {
            item.report_error("the key gpu already selects the device", "keep one of device and gpu")
        }
        (Some((device, _)), None) => Some(DeviceRequest::Named(device)),
        (None, gpu) => gpu.map(DeviceRequest::Gpu),
    }
}

/// Returns whether `text` is a valid device name: `auto`, `cpu`, `gpu`, or a backend with an index.
pub(crate) fn is_device_name(text: &str) -> bool {
    let indexed = |(backend, index): (&str, &str)| {
        !backend.is_empty() && backend.bytes().all(|b| b.is_ascii_lowercase()) && index.parse::<u32>().is_ok()
    };
    matches!(text, "auto" | "cpu" | "gpu") || text.split_once(':').is_some_and(indexed)
}

fn read_gpu(item: &ManifestValue<'_>) -> Option<GpuRequest> {
    if item.number().is_some() {
        return item.positive(f64::from(SLOTS_MAX)).map(GpuRequest::Slots);
    }
    let words = [("required", GpuRequest::Required), ("preferred", GpuRequest::Preferred), ("none", GpuRequest::None)];
    match item.text().and_then(|text| words.iter().find(|(word, _)| *word == text)) {
        Some((_, gpu)) => Some(*gpu),
        None => item.report_expected("\"required\", \"preferred\", \"none\", or a number of slots such as 1 or 0.25"),
    }
}

fn read_retry_causes(item: &ManifestValue<'_>) -> Option<Vec<String>> {
    item.list(|cause| cause.choice(&RETRY_CAUSES.map(|word| (word, word))).map(str::to_owned))
}

/// Reads the names of optimizations, each of `known`.
pub(super) fn read_optimizations(item: &ManifestValue<'_>, known: &[&'static str]) -> Option<Vec<String>> {
    let choices: Vec<_> = known.iter().map(|&name| (name, name)).collect();
    item.list(|name| name.choice(&choices).map(str::to_owned))
}

fn read_checkpoint_policy(table: &ManifestTable<'_>) -> Option<CheckpointPolicy> {
    let every = table.optional("every", |item| {
        match item.parse_text_or_report(units::parse_interval, "an interval such as \"30s\" or \"100steps\"")? {
            TimeOrSteps::Steps(0) | TimeOrSteps::Time(Duration::ZERO) => item.report_expected("an interval above 0"),
            every => Some(every),
        }
    });
    let keep_last = table.optional("keep_last", |item| item.bounded_count(1, KEEP_LAST_MAX));
    let keep_best = table.optional("keep_best", |item| {
        if item.is_table() {
            return read_keep_best(&item.table()?);
        }
        item.string()
    });
    table.report_unknown_keys();
    Some(CheckpointPolicy { every, keep_last, keep_best })
}

fn read_keep_best(table: &ManifestTable<'_>) -> Option<String> {
    let metric = table.required("metric", "metric = \"validation/loss\"", |item| item.string());
    let mode = table.optional("mode", |item| item.choice(&[("min", "min:"), ("max", "max:")]));
    table.report_unknown_keys();
    Some(format!("{}{}", mode.unwrap_or_default(), metric?))
}

fn read_utilization(table: &ManifestTable<'_>) -> Option<MinimumUtilization> {
    let min_gpu = table.required("min_gpu", "min_gpu = 0.10", |item| item.positive(1.0));
    let window = table.required("window", "window = \"1h\"", |item| item.duration());
    table.report_unknown_keys();
    Some(MinimumUtilization { min_gpu: min_gpu?, window: window? })
}
