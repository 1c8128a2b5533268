//! Arguments of `saggar bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use saggar_project::PRECISIONS;

/// Measure a plugin on the devices of this machine, without a server.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Train for some steps on each device in turn: speed, device time, and an estimate for more steps.
    Train(Box<BenchTrainArgs>),
    /// Predict on each device in turn: latency and throughput of batches, without a network.
    Infer(BenchInferArgs),
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
}
