//! Arguments of `saggar run`, and the flags that say how a job runs. Each is `None` if not given, because flags take
//! precedence over the project file.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use saggar_project::units::{self, TimeOrSteps};
use saggar_project::{
    CheckpointPolicy, DeviceRequest, GpuRequest, JOB_OPTIMIZATIONS, PRECISIONS, RETRY_CAUSES, RunOptions,
};

use super::label::parse_label;

#[derive(Debug, Default, Args)]
pub(crate) struct RunArgs {
    /// A component, the directory of a plugin, which is built first, a reference plugin, such as `lenet`, or the URL of
    /// a component, which the server fetches [default: the task's plugin, else this directory].
    pub(crate) plugin: Option<PathBuf>,
    /// The SHA-256 that the component must have. Required for a URL.
    #[arg(long, value_name = "DIGEST", requires = "plugin")]
    pub(crate) sha256: Option<String>,
    /// Run this task of the project file saggar.toml; options given here win.
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// Run the specification in this file, as printed by `saggar status JOB --field spec`; options given here win.
    #[arg(long, value_name = "FILE", conflicts_with = "task")]
    pub(crate) from_file: Option<PathBuf>,
    /// The world that the plugin must implement: `train-plugin`, `model-plugin@0.1`; `saggar plugins worlds` lists them.
    #[arg(long, value_name = "WORLD")]
    pub(crate) env: Option<String>,
    /// The purpose of the run [default: the task's, else job].
    #[arg(long, value_enum)]
    pub(crate) mode: Option<RunMode>,
    /// With --mode notebook: stop after this time without a running cell, a used terminal or a saved document
    /// [default: 1h].
    #[arg(long, value_parser = parse_positive_duration, value_name = "TIME")]
    pub(crate) idle_timeout: Option<Duration>,
    /// A dataset or a job's output, and the plugin's mount point: `mnist`, `mnist/1:/data`,
    /// `job:mnist-3/output:/before`. Can be given several times.
    #[arg(long, value_name = "DATA[:MOUNT]")]
    pub(crate) data: Vec<String>,
    /// The project that the job is numbered in (or SAGGAR_PROJECT) [default: the project file's, else the plugin's
    /// name].
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// A description of the job.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Initial weights: `job:mnist-7`, `job:mnist-7/checkpoint@1200`, `model:face@12`.
    #[arg(long, value_name = "WEIGHTS")]
    pub(crate) init_from: Option<String>,
    /// A secret that the plugin can read. Can be given several times.
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<String>,
    #[command(flatten)]
    pub(crate) options: RunFlags,
    /// Estimate the time of the whole training first, with a short separate job that is removed again, and warn if it
    /// exceeds --max-runtime.
    #[arg(long)]
    pub(crate) estimate: bool,
    /// Print the log until the job ends; Ctrl-C leaves it running.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Wait until the job ends and show the result.
    #[arg(long, conflicts_with = "follow")]
    pub(crate) wait: bool,
    /// The plugin's parameters: `epochs=3` or `--epochs 3`. `saggar run PLUGIN --help` lists them.
    #[arg(last = true, value_name = "PARAMETERS")]
    pub(crate) parameters: Vec<String>,
    /// Whether only the plugin's parameters are shown.
    #[arg(skip)]
    pub(crate) shows_parameters: bool,
}

/// The purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunMode {
    /// Train, which continues after this command ends
    Job,
    /// Serve the model that the job publishes: wait until the server answers from it, and print its address
    Serve,
    /// Start JupyterLab on the server, and print its address. The plugin is not run: it only names the project. A task
    /// with mode = "notebook" needs no --mode
    Notebook,
}

/// Flags that say how a job runs. `[task.NAME]` and `[project.defaults]` of saggar.toml have the same keys.
#[derive(Debug, Default, Args)]
pub(crate) struct RunFlags {
    /// The device: auto, cpu, gpu, vulkan:0 (or SAGGAR_DEVICE) [default: auto].
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Fail if there is no GPU; with a number, use this many slots of one: --gpu=0.25.
    #[arg(long, conflicts_with = "device", num_args = 0..=1, require_equals = true, default_missing_value = "required",
        value_parser = parse_gpu, value_name = "N")]
    gpu: Option<GpuRequest>,
    /// A label that the host of the job must have: gpu=a100. Can be given several times.
    #[arg(long = "label", value_parser = parse_label, value_name = "NAME=VALUE")]
    labels: Vec<(String, String)>,
    /// The seed of all random numbers [default: 0].
    #[arg(long)]
    seed: Option<u64>,
    /// Maximum host memory of the plugin: 512MiB.
    #[arg(long, value_parser = parse_positive_bytes, value_name = "SIZE")]
    memory: Option<u64>,
    /// Maximum device memory of the job: 2GiB.
    #[arg(long, value_parser = parse_positive_bytes, value_name = "SIZE")]
    gpu_memory: Option<u64>,
    /// The queue in which the job waits [default: default].
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// The priority, 0 to 100; higher runs first [default: 50].
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100), value_name = "N")]
    priority: Option<u32>,
    /// Let a job of higher priority preempt this one [default: false].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    preemptible: Option<bool>,
    /// Extra attempts after interruptions [default: 5].
    #[arg(long, value_name = "N")]
    retry: Option<u32>,
    /// The causes that are retried: preempted,device-lost,worker-lost,host-restart,non-finite,error.
    #[arg(long, value_delimiter = ',', value_parser = RETRY_CAUSES, hide_possible_values = true, value_name = "CAUSE,...")]
    retry_on: Vec<String>,
    /// Save and end after this time, over all attempts: 1h.
    #[arg(long, value_parser = parse_positive_duration, value_name = "TIME")]
    max_runtime: Option<Duration>,
    /// How often --max-runtime is granted again.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "1", value_name = "N")]
    auto_extend: Option<u32>,
    /// Save and start another attempt after this time: 1h.
    #[arg(long, value_parser = parse_positive_duration, value_name = "TIME")]
    max_attempt_runtime: Option<Duration>,
    /// When to save a checkpoint: 30s, 100steps. By default one second after training began, then as often as saving
    /// takes at most 1 % of the time, but at least every 30 s.
    #[arg(long, value_parser = units::parse_interval, value_name = "INTERVAL")]
    checkpoint_every: Option<TimeOrSteps>,
    /// The number of newest checkpoints to keep [default: 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    checkpoint_keep: Option<u32>,
    /// Also keep the best checkpoint by this metric: loss, max:bleu.
    #[arg(long, value_name = "METRIC")]
    keep_best: Option<String>,
    /// What to do if the loss or a variable is infinite or not a number: end before it is saved (stop, the default),
    /// skip such updates (skip), or continue (continue). --retry-on non-finite rolls back to the newest checkpoint.
    #[arg(long, value_parser = ["stop", "skip", "continue"], hide_possible_values = true, value_name = "stop|skip|continue")]
    non_finite: Option<String>,
    /// The precision of a training: float32, the default, or mixed: products and convolutions in float16 over float32
    /// weights, with automatic loss scaling.
    #[arg(long, value_parser = PRECISIONS, hide_possible_values = true, value_name = "float32|mixed")]
    precision: Option<String>,
    /// Leave these optimizations out: winograd,autotune. Every attempt leaves them out. An unknown name is refused with
    /// the list of all.
    #[arg(long, value_delimiter = ',', value_parser = JOB_OPTIMIZATIONS, hide_possible_values = true, value_name = "OPTIMIZATION,...")]
    without: Vec<String>,
    /// The experiment: a group of jobs to compare.
    #[arg(short, long, value_name = "NAME")]
    experiment: Option<String>,
    /// Workers that train one model together [default: 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    replicas: Option<u32>,
    /// Hosts that the replicas are divided among, each with the slots of the job [default: 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    hosts: Option<u32>,
    /// Parts that each batch is divided into, independent of the number of replicas.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    shards: Option<u32>,
    /// Record the host calls of a training with digests of every batch, for `saggar replay`. The device then waits after
    /// every step [default: false].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    record: Option<bool>,
}

impl RunFlags {
    /// Returns the options that were given.
    pub(crate) fn run_options(&self) -> RunOptions {
        let checkpoint = CheckpointPolicy {
            every: self.checkpoint_every,
            keep_last: self.checkpoint_keep,
            keep_best: self.keep_best.clone(),
        };
        RunOptions {
            device: self.device.clone().map(DeviceRequest::Named).or(self.gpu.map(DeviceRequest::Gpu)),
            labels: (!self.labels.is_empty()).then(|| self.labels.iter().cloned().collect()),
            seed: self.seed,
            memory: self.memory,
            gpu_memory: self.gpu_memory,
            queue: self.queue.clone(),
            priority: self.priority,
            preemptible: self.preemptible,
            retry: self.retry,
            retry_on: (!self.retry_on.is_empty()).then(|| self.retry_on.clone()),
            max_runtime: self.max_runtime,
            auto_extend: self.auto_extend,
            max_attempt_runtime: self.max_attempt_runtime,
            checkpoint: (checkpoint != CheckpointPolicy::default()).then_some(checkpoint),
            non_finite: self.non_finite.clone(),
            precision: self.precision.clone(),
            without: (!self.without.is_empty()).then(|| self.without.clone()),
            utilization: None,
            experiment: self.experiment.clone(),
            replicas: self.replicas,
            hosts: self.hosts,
            shards: self.shards,
            record: self.record,
        }
    }
}

fn parse_gpu(text: &str) -> Result<GpuRequest, String> {
    match text {
        "required" => Ok(GpuRequest::Required),
        "preferred" => Ok(GpuRequest::Preferred),
        "none" => Ok(GpuRequest::None),
        number => match number.parse() {
            Ok(slots) if slots > 0.0 => Ok(GpuRequest::Slots(slots)),
            _ => Err("expected required, preferred, none, or a number of slots above 0 such as 0.25".to_owned()),
        },
    }
}

fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match units::parse_duration(text) {
        Ok(Duration::ZERO) => Err("expected a time above 0".to_owned()),
        read => read.map_err(|error| error.to_string()),
    }
}

fn parse_positive_bytes(text: &str) -> Result<u64, String> {
    match units::parse_bytes(text) {
        Ok(0) => Err("expected a size above 0".to_owned()),
        read => read.map_err(|error| error.to_string()),
    }
}
