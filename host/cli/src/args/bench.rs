//! What `saggar bench` takes.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use saggar_project::PRECISIONS;

/// Measure a plugin on the devices of this machine, without a server.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Train for some steps on one device after the other: speed, device time, and how long more steps would take.
    Train(Box<BenchTrainArgs>),
    /// Predict on one device after the other: latency and throughput of batches, without a network between.
    Infer(BenchInferArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BenchTrainArgs {
    /// A component, or the directory of a plugin, which is built first; the task's plugin, else this directory, where it
    /// is left out.
    pub(crate) plugin: Option<PathBuf>,
    /// Take plugin, parameters and data of this task of the project file saggar.toml; what is given here wins.
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// The devices, one after the other: cpu,vulkan:0 (or auto, gpu).
    #[arg(long, value_delimiter = ',', default_value = "auto", value_name = "DEVICE,...")]
    pub(crate) devices: Vec<String>,
    /// Steps to run on each.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub(crate) steps: u64,
    /// Estimate the plugin's whole training, not only those steps.
    #[arg(long)]
    pub(crate) total: bool,
    /// A folder as `saggar data push` takes it, or a dataset of the state directory, and where the plugin finds it:
    /// `examples/digits`, `mnist/1:/data`. May be given several times.
    #[arg(long, value_name = "DATA[:MOUNT]")]
    pub(crate) data: Vec<String>,
    /// A parameter of the plugin, as after `--`. May be given several times.
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub(crate) param: Vec<String>,
    /// Where everything random comes from.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// In which numbers it computes: float32, or mixed, as for `saggar run`; the task's where it is left out.
    #[arg(long, value_parser = PRECISIONS, hide_possible_values = true, value_name = "float32|mixed")]
    pub(crate) precision: Option<String>,
    /// The state directory with datasets and models, if there is one.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// Write a trace of the kernels of some further steps, for chrome://tracing or Perfetto, and show those that take most.
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// The plugin's parameters: `epochs=3` or `--epochs 3`.
    #[arg(last = true, value_name = "PARAMETERS")]
    pub(crate) parameters: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchInferArgs {
    /// A model, `digits` or `digits@3`, or the directory of one of its versions; or a component, or the directory of a plugin,
    /// which is given the weights of --model.
    #[arg(value_name = "MODEL|PLUGIN")]
    pub(crate) model: String,
    /// The weights of another plugin's code: `digits`, `digits@3`, or the directory of a version.
    #[arg(long = "model", value_name = "MODEL")]
    pub(crate) weights: Option<String>,
    /// The devices, one after the other: cpu,vulkan:0 (or auto, gpu).
    #[arg(long, value_delimiter = ',', default_value = "auto", value_name = "DEVICE,...")]
    pub(crate) devices: Vec<String>,
    /// Items of a request, one size after the other: 1,8,32.
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..), value_name = "N,...")]
    pub(crate) batch: Vec<u32>,
    /// Requests of each size, one after the other. Also: --steps.
    #[arg(long, alias = "steps", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) requests: u32,
    /// The state directory with the models.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// The directory of model versions, if not the state directory's.
    #[arg(long, value_name = "DIR")]
    pub(crate) models: Option<PathBuf>,
}
