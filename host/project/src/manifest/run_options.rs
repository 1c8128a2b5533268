//! How a job runs: the keys that a task, the project's defaults and the command line have in common. Each is none where
//! nobody said anything, so that what is said closer wins.

use core::time::Duration;

use crate::limits::{AUTO_EXTEND_MAX, KEEP_LAST_MAX, PRIORITY_MAX, REPLICAS_MAX, RETRY_MAX, SLOTS_MAX};
use crate::manifest_table::ManifestTable;
use crate::manifest_value::ManifestValue;
use crate::parse_report::TableKind;
use crate::units::{self, TimeOrSteps};

/// How a job runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunOptions {
    /// Where it computes.
    pub device: Option<DeviceRequest>,
    /// Where everything random comes from.
    pub seed: Option<u64>,
    /// Bytes of host memory.
    pub memory: Option<u64>,
    /// Bytes of device memory.
    pub gpu_memory: Option<u64>,
    /// Where it waits.
    pub queue: Option<String>,
    /// 0 to 100; higher goes first.
    pub priority: Option<u32>,
    /// Whether a job of a higher priority may take its place for a while.
    pub preemptible: Option<bool>,
    /// Extra attempts.
    pub retry: Option<u32>,
    /// The causes that are worth another attempt, as the job's specification calls them.
    pub retry_on: Option<Vec<String>>,
    /// All attempts together.
    pub max_runtime: Option<Duration>,
    /// How often `max_runtime` begins again by itself.
    pub auto_extend: Option<u32>,
    /// Each attempt alone.
    pub max_attempt_runtime: Option<Duration>,
    /// When state is saved, and what is kept.
    pub checkpoint: Option<CheckpointPolicy>,
    /// What becomes of a training whose numbers are none any more: `stop` or `continue`.
    pub non_finite: Option<String>,
    /// In which numbers a training computes: `float32` or `mixed`.
    pub precision: Option<String>,
    /// How busy it must keep its device.
    pub utilization: Option<MinimumUtilization>,
    /// The group of jobs that it is compared with.
    pub experiment: Option<String>,
    /// Workers that train together.
    pub replicas: Option<u32>,
    /// Parts that each batch is divided into, whatever the number of replicas.
    pub shards: Option<u32>,
}

impl RunOptions {
    /// What is said here, and where nothing is said what is said `below`.
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
            utilization: self.utilization.or(below.utilization),
            experiment: self.experiment.or(below.experiment),
            replicas: self.replicas.or(below.replicas),
            shards: self.shards.or(below.shards),
        }
    }
}

/// Where a job computes.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceRequest {
    /// By its name: `cpu`, `vulkan:0`.
    Named(String),
    /// By what is wanted of it.
    Gpu(GpuRequest),
}

/// Whether a job wants a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GpuRequest {
    /// It fails without one.
    Required,
    /// It takes one where there is one.
    Preferred,
    /// It computes on the CPU.
    None,
    /// It takes so many slots of one, or a share.
    Slots(f64),
}

/// When state is saved, and what is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointPolicy {
    /// When it is due.
    pub every: Option<TimeOrSteps>,
    /// How many of the newest are kept.
    pub keep_last: Option<u32>,
    /// The metric whose best checkpoint is kept, with the best in front: `loss`, `min:loss`, `max:bleu`.
    pub keep_best: Option<String>,
}

/// The share of a window of time that a job must keep its device busy; it is stopped where it does not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MinimumUtilization {
    /// Above 0, at most 1.
    pub min_gpu: f64,
    /// The window.
    pub window: Duration,
}

/// What a job may be tried again after.
pub const RETRY_CAUSES: [&str; 6] = ["preempted", "device-lost", "worker-lost", "host-restart", "non-finite", "error"];
const NON_FINITE_POLICIES: [&str; 3] = ["stop", "skip", "continue"];
/// In which numbers a training may compute.
pub const PRECISIONS: [&str; 2] = ["float32", "mixed"];

/// Reads the keys; `table` is finished by the caller, who may read more.
pub(super) fn read_run_options(table: &ManifestTable<'_>) -> RunOptions {
    RunOptions {
        device: read_device(table),
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
        utilization: table.optional("utilization", |item| read_utilization(&item.table()?)),
        experiment: table.optional("experiment", |item| item.name()),
        replicas: table.optional("replicas", |item| item.bounded_count(1, REPLICAS_MAX)),
        shards: table.optional("shards", |item| item.bounded_count(1, REPLICAS_MAX)),
    }
}

fn read_device(table: &ManifestTable<'_>) -> Option<DeviceRequest> {
    let named = table.optional("device", |item| match item.text()? {
        device if is_device_name(device) => Some((device.to_owned(), item.clone())),
        _ => item.report_expected("auto, cpu, gpu or a device's name such as vulkan:0"),
    });
    let gpu = table.optional("gpu", read_gpu);
    match (named, gpu) {
        (Some((_, item)), Some(_)) => {
            item.report_error("gpu says already where the job computes", "keep one of device and gpu")
        }
        (Some((device, _)), None) => Some(DeviceRequest::Named(device)),
        (None, gpu) => gpu.map(DeviceRequest::Gpu),
    }
}

/// Whether `text` may name a device: `auto`, `cpu`, `read_gpu`, or a backend with an index.
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
