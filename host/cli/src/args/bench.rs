//! Arguments of `saggar bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use saggar_project::PRECISIONS;

use super::bench_serve::BenchServeArgs;
use super::chart::{ChartFileArgs, ChartLookArgs};
use super::without::WithoutArgs;

/// Measure plugins on the devices of this machine, or a running server, and compare measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Train for some steps on each device in turn: speed, device time, and an estimate for more steps.
    Train(Box<BenchTrainArgs>),
    /// Predict on each device in turn: latency and throughput of batches, without a network.
    Infer(BenchInferArgs),
    /// Send predictions to the running server: requests per second, latency, and where the server's time goes.
    Serve(Box<BenchServeArgs>),
    /// Read the batches of a dataset as trainings do: MB/s and items/s, cold and warm.
    Data(BenchDataArgs),
    /// Train with several numbers of worker processes on the running server: the speed-up, and Amdahl's law.
    Scale(Box<BenchScaleArgs>),
    /// Compare two results that were saved with --save, and fail if the second is worse.
    Diff(BenchDiffArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BenchTrainArgs {
    /// A component, the directory of a plugin, which is built first, or a reference plugin, such as `lenet` [default:
    /// the task's plugin, else this directory].
    pub(crate) plugin: Option<PathBuf>,
    /// Use the plugin, parameters and data of this task in the project file saggar.toml; options given here win.
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// The devices to measure in turn: cpu,vulkan:0 (or auto, gpu).
    #[arg(long, value_delimiter = ',', default_value = "auto", value_name = "DEVICE,...")]
    pub(crate) devices: Vec<String>,
    #[command(flatten)]
    pub(crate) without: WithoutArgs,
    /// Steps to run on each device.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub(crate) steps: u64,
    /// Estimate the plugin's whole training instead of only those steps.
    #[arg(long)]
    pub(crate) total: bool,
    /// A folder, as for `saggar data push`, or a dataset of the state directory, and the plugin's mount point:
    /// `examples/digits`, `mnist/1:/data`. Can be given several times.
    #[arg(long, value_name = "DATA[:MOUNT]")]
    pub(crate) data: Vec<String>,
    /// A parameter of the plugin, as after `--`. Can be given several times.
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub(crate) param: Vec<String>,
    /// The seed of all random numbers.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// The precision of the training: float32 or mixed, as for `saggar run` [default: the task's].
    #[arg(long, value_parser = PRECISIONS, hide_possible_values = true, value_name = "float32|mixed")]
    pub(crate) precision: Option<String>,
    /// The state directory with datasets and models, if it exists.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// Write a trace of the kernels of some further steps, for chrome://tracing or Perfetto, and show the slowest
    /// kernels.
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// Write the result to this file, for `saggar bench diff`.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// The plugin's parameters: `epochs=3` or `--epochs 3`.
    #[arg(last = true, value_name = "PARAMETERS")]
    pub(crate) parameters: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchInferArgs {
    /// A model, `digits` or `digits@3`, or the directory of one of its versions; or a component or the directory of a
    /// plugin, which then gets the weights of --model.
    #[arg(value_name = "MODEL|PLUGIN")]
    pub(crate) model: String,
    /// The weights to use with a plugin: `digits`, `digits@3`, or the directory of a version.
    #[arg(long = "model", value_name = "MODEL")]
    pub(crate) weights: Option<String>,
    /// The devices to measure in turn: cpu,vulkan:0 (or auto, gpu).
    #[arg(long, value_delimiter = ',', default_value = "auto", value_name = "DEVICE,...")]
    pub(crate) devices: Vec<String>,
    #[command(flatten)]
    pub(crate) without: WithoutArgs,
    /// Measure with and without each optimization of the compiler and the device, in turn, and show its effect.
    #[arg(long, conflicts_with = "save")]
    pub(crate) on_off: bool,
    /// Items per request; each size is measured in turn: 1,8,32.
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..), value_name = "N,...")]
    pub(crate) batch: Vec<u32>,
    /// Requests of each size, sent one after the other. Also: --steps.
    #[arg(long, alias = "steps", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) requests: u32,
    /// The state directory with the models.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// The directory of model versions [default: that of the state directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) models: Option<PathBuf>,
    /// Write the result to this file, for `saggar bench diff`.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchDataArgs {
    /// The dataset of the state directory: digits or digits/1.
    #[arg(value_name = "DATASET[/VERSION]")]
    pub(crate) dataset: String,
    /// The split to read [default: all items].
    #[arg(long, value_name = "SPLIT")]
    pub(crate) split: Option<String>,
    /// The fields to read [default: all].
    #[arg(long, value_delimiter = ',', value_name = "FIELD,...")]
    pub(crate) fields: Vec<String>,
    /// Items in a batch.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) batch: u32,
    /// Warm epochs to read after the first one.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) epochs: u32,
    /// Read the items in their stored order, instead of shuffled.
    #[arg(long)]
    pub(crate) in_order: bool,
    /// The seed of the shuffle.
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub(crate) seed: u64,
    /// The device that batches are copied to.
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub(crate) device: String,
    /// The state directory with the dataset.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// Write the result to this file, for `saggar bench diff`.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchScaleArgs {
    /// A component, the directory of a plugin, which is built first, or a reference plugin, such as `lenet` [default:
    /// the task's plugin, else this directory].
    pub(crate) plugin: Option<PathBuf>,
    /// Use the plugin, parameters and data of this task in the project file saggar.toml; options given here win.
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// A dataset, and the plugin's mount point: `mnist/1:/data`. Can be given several times.
    #[arg(long, value_name = "DATA[:MOUNT]")]
    pub(crate) data: Vec<String>,
    /// The numbers of worker processes, 1 among them.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4", value_parser = clap::value_parser!(u32).range(1..=64), value_name = "N,...")]
    pub(crate) workers: Vec<u32>,
    /// Parts that each batch is divided into [default: the smallest number that all --workers can share].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64), value_name = "N")]
    pub(crate) shards: Option<u32>,
    /// Trainings with each number of workers. An interval needs at least 3.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    pub(crate) repetitions: u32,
    /// The device: auto, cpu, gpu, vulkan:0 [default: the task's, else auto].
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// A parameter of the plugin, as after `--`. Can be given several times.
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub(crate) param: Vec<String>,
    /// The seed of the training, and of the random samples that make the confidence interval.
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) chart: ChartFileArgs,
    #[command(flatten)]
    pub(crate) look: ChartLookArgs,
    /// Write the result to this file, for `saggar bench diff`.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// The plugin's parameters: `epochs=3` or `--epochs 3`.
    #[arg(last = true, value_name = "PARAMETERS")]
    pub(crate) parameters: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchDiffArgs {
    /// The result before a change, saved with --save.
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,
    /// The result after it.
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,
    /// The change for the worse that counts as a regression, if the whole confidence interval is beyond it.
    #[arg(long, default_value = "5%", value_parser = parse_threshold, value_name = "PERCENT")]
    pub(crate) threshold: f64,
    /// The seed of the random samples that make the confidence interval.
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub(crate) seed: u64,
}

/// Parses `5%` to 0.05.
fn parse_threshold(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let number = number.filter(|percent| (0.0..100.0).contains(percent));
    number
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "expected a percentage from 0% to below 100%, such as 5%".to_owned())
}
