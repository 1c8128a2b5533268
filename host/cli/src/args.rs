//! The command line.

mod key;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use saggar_jobs::CheckpointEvery;

use crate::commands::init::templates;
use crate::commands::listen::Address;
use crate::units;

pub(crate) use key::{Key, KeyCreate, KeyHome, KeyRevoke};

/// Train and serve machine-learning models that are sandboxed WebAssembly plugins.
#[derive(Debug, Parser)]
#[command(name = "saggar", version, propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// The server to talk to.
    #[arg(long, global = true, env = "SAGGAR_HOST", default_value = "http://127.0.0.1:5000", value_name = "URL")]
    pub(crate) host: String,
    /// The key to send to it.
    #[arg(long, global = true, env = "SAGGAR_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// The certificate to trust, in PEM form, where no public authority vouches for the server's.
    #[arg(long, global = true, env = "SAGGAR_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Print JSON, with the names of the REST interface.
    #[arg(long, global = true, env = "SAGGAR_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    pub(crate) json: bool,
    /// Print names only, and no notes.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Log more (once: debug, twice: trace).
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// No colours.
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve models and run jobs.
    Serve(Serve),
    /// Start a training job.
    Run(Run),
    /// List jobs.
    #[command(visible_alias = "jobs")]
    Ps(Ps),
    /// Show one job with its attempts.
    Status(JobName),
    /// Print a job's log.
    Logs(Logs),
    /// Have a job save its state and end.
    Stop(JobName),
    /// Files that a job wrote.
    #[command(name = "output", subcommand)]
    Outputs(Outputs),
    /// Datasets.
    #[command(subcommand)]
    Data(Data),
    /// Models and their versions.
    #[command(subcommand)]
    Models(Models),
    /// Make a served model of an ONNX file.
    Import(Import),
    /// Ask a model for a prediction.
    Predict(Predict),
    /// Keys that clients of a server need.
    #[command(subcommand)]
    Key(Key),
    /// Tell what this machine has, and what is missing.
    Doctor(Doctor),
    /// Build a plugin into a component.
    Build(Build),
    /// Start a plugin of your own.
    Init(Init),
    /// Print the devices of this machine (the server starts this).
    #[command(hide = true)]
    Devices,
    /// Run one attempt of a job (the server starts this).
    #[command(hide = true)]
    Worker(Worker),
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen: a port, 0 for a free one, or a socket file such as unix:/run/saggar.sock, which only this user
    /// may open. Several times, or with commas, for several places.
    #[arg(long, env = "SAGGAR_ADDR", default_value = "127.0.0.1:5000", value_delimiter = ',', value_name = "ADDRESS")]
    pub(crate) addr: Vec<Address>,
    /// Speak HTTPS on ports, with this certificate in PEM form and those that vouch for it after it. New files are
    /// taken up while the server runs.
    #[arg(long, env = "SAGGAR_TLS_CERT", requires = "tls_key", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM form.
    #[arg(long, env = "SAGGAR_TLS_KEY", requires = "tls_cert", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The state directory: records, datasets, checkpoints, models.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// The directory of model versions to watch, if not the state directory's.
    #[arg(long, value_name = "DIR")]
    pub(crate) models: Option<PathBuf>,
    /// Jobs that run at once.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) jobs: usize,
    /// The device that predicts: auto, cpu, gpu, vulkan:0.
    #[arg(long, env = "SAGGAR_DEVICE", default_value = "auto", value_name = "DEVICE")]
    pub(crate) device: String,
    /// Device memory that all models may hold together: 2GiB. Those that nobody asked for longest sleep where it is short.
    #[arg(long, value_parser = units::bytes, value_name = "SIZE")]
    pub(crate) models_memory: Option<u64>,
    /// How long a model version may take to load before it is given up: 60s.
    #[arg(long, default_value = "60s", value_parser = units::duration, value_name = "TIME")]
    pub(crate) load_timeout: Duration,
    /// How long an import of an ONNX file may take: 600s.
    #[arg(long, default_value = "600s", value_parser = units::duration, value_name = "TIME")]
    pub(crate) import_timeout: Duration,
    /// The plugin that reads ONNX files; by default it is looked for beside the program.
    #[arg(long, env = "SAGGAR_ONNX_PLUGIN", value_name = "FILE")]
    pub(crate) onnx_plugin: Option<PathBuf>,
    /// Where events of predictions may be sent, by the beginning of the address: https://example.com/hooks. May be given
    /// several times; without it none are sent.
    #[arg(long = "webhooks-allow", value_name = "ADDRESS")]
    pub(crate) webhooks_allow: Vec<saggar_serve::WebhookPrefix>,
    /// Ask for keys on this machine too; elsewhere they are asked for anyway.
    #[arg(long)]
    pub(crate) require_keys: bool,
    /// Ask for no keys, wherever the server listens.
    #[arg(long, conflicts_with = "require_keys")]
    pub(crate) insecure: bool,
    /// A name besides localhost that requests without a key may come for, such as that which a proxy passes on. May be
    /// given several times.
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// A component, or the directory of a plugin, which is built first.
    #[arg(default_value = ".")]
    pub(crate) plugin: PathBuf,
    /// What is wanted of it.
    #[arg(long, value_enum, default_value_t = Mode::Job)]
    pub(crate) mode: Mode,
    /// A dataset and where the plugin finds it: `mnist`, `mnist/1:/data`. May be given several times.
    #[arg(long, value_name = "DATASET[:MOUNT]")]
    pub(crate) data: Vec<String>,
    /// auto, cpu, gpu, vulkan:0.
    #[arg(long, env = "SAGGAR_DEVICE", default_value = "auto", value_name = "DEVICE")]
    pub(crate) device: String,
    /// The same as --device gpu: fail where there is none.
    #[arg(long)]
    pub(crate) gpu: bool,
    /// The group that the job is numbered in; the plugin's name by default.
    #[arg(long, env = "SAGGAR_PROJECT", value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// What this job is for.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Where everything random comes from.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Extra attempts after interruptions.
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) retry: u32,
    /// When to save a checkpoint: 30s, 100steps.
    #[arg(long, default_value = "30s", value_parser = units::checkpoint_every, value_name = "INTERVAL")]
    pub(crate) checkpoint_every: CheckpointEvery,
    /// Save and end after this time, all attempts together: 1h.
    #[arg(long, value_parser = units::duration, value_name = "TIME")]
    pub(crate) max_runtime: Option<Duration>,
    /// Host memory the plugin may take: 512MiB.
    #[arg(long, value_parser = units::bytes, value_name = "SIZE")]
    pub(crate) memory: Option<u64>,
    /// Device memory the job may take: 2GiB.
    #[arg(long, value_parser = units::bytes, value_name = "SIZE")]
    pub(crate) gpu_memory: Option<u64>,
    /// Print the log until the job ends; Ctrl-C leaves it running.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Wait until the job ends and show the result.
    #[arg(long, conflicts_with = "follow")]
    pub(crate) wait: bool,
    /// The plugin's parameters: `epochs=3` or `--epochs 3`.
    #[arg(last = true, value_name = "PARAMETERS")]
    pub(crate) parameters: Vec<String>,
}

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// A training, which goes on without this command
    Job,
    /// The model that it publishes: waits until the server answers from it, and prints its address
    Serve,
}

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Finished jobs too.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Only jobs in this state.
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct JobName {
    /// The job: `digits-7`.
    pub(crate) job: String,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The job: `digits-7`.
    pub(crate) job: String,
    /// Go on until the job ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only this attempt's.
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// Only the last lines.
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u64>,
    /// With the time of each line.
    #[arg(long)]
    pub(crate) timestamps: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Outputs {
    /// List them.
    Ls(JobName),
    /// Fetch one, or all of them.
    Get(OutputGet),
}

#[derive(Debug, Args)]
pub(crate) struct OutputGet {
    /// The job: `digits-7`.
    pub(crate) job: String,
    /// The file's path, as `output ls` shows it; all files where it is left out.
    pub(crate) path: Option<String>,
    /// Put files there; a file of the same name is replaced.
    #[arg(short, long, default_value = ".", value_name = "DIR")]
    pub(crate) output: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Data {
    /// Store a directory as a version of a dataset.
    Push(DataPush),
    /// List datasets and their versions.
    Ls {
        /// Only this one.
        name: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DataPush {
    /// The directory: text files, MNIST's IDX files, CIFAR-10's binary files, or CSV with a dataset.json.
    pub(crate) dir: PathBuf,
    /// The dataset's name; the directory's by default.
    #[arg(long)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Models {
    /// List models.
    Ls,
    /// Show a model's versions and what it takes and gives.
    Show {
        /// The model.
        model: String,
    },
    /// Make a version the default and keep it so; `newest` follows new versions again.
    Promote {
        /// The model.
        model: String,
        /// The version's number, or `newest`.
        #[arg(id = "number", value_name = "VERSION")]
        version: String,
    },
    /// Make the version the default that was it before.
    Rollback {
        /// The model.
        model: String,
    },
    /// Give a version a share of the default requests, under the alias `canary`; `0%` ends it.
    Canary {
        /// The model.
        model: String,
        /// The version.
        #[arg(id = "number", value_name = "VERSION")]
        version: u64,
        /// Its share: `10%`.
        #[arg(value_parser = units::percent)]
        share: u32,
    },
    /// Bring a model, or one more of its versions, up.
    Load {
        /// The model.
        model: String,
        /// The version.
        #[arg(id = "number", value_name = "VERSION")]
        version: Option<u64>,
    },
    /// Take a model, or one of its versions, down, and free what it holds.
    Unload {
        /// The model.
        model: String,
        /// The version.
        #[arg(id = "number", value_name = "VERSION")]
        version: Option<u64>,
    },
    /// Bring a model up where it sleeps, and predict its warm-up samples.
    Warm {
        /// The model.
        model: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The ONNX file.
    pub(crate) file: PathBuf,
    /// The model's name; the file's by default.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Batch sizes to build graphs for, where the model leaves its batch open.
    #[arg(long, value_delimiter = ',', value_name = "N,N,...")]
    pub(crate) batch: Vec<u32>,
    /// Dimensions that the model leaves open: `image=1x3x224x224`; `?` leaves one as it is. May be given several times.
    #[arg(long, value_name = "INPUT=SHAPE")]
    pub(crate) shape: Vec<String>,
    /// The value of an input that is then no input: `k=5`, `axes=[0,1]`. May be given several times.
    #[arg(long, value_name = "INPUT=JSON")]
    pub(crate) constant: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Predict {
    /// The model, or a version of it: `digits`, `digits@3`. The server's default where it is left out.
    pub(crate) model: Option<String>,
    /// An input: a JSON value, text, or `@` and a file. May be given several times.
    #[arg(short, long, required = true, value_name = "NAME=VALUE|NAME=@FILE")]
    pub(crate) input: Vec<String>,
    /// Show what the model writes as it comes, not all of it at the end.
    #[arg(long, conflicts_with_all = ["output", "top_k"])]
    pub(crate) stream: bool,
    /// Show the K most probable classes.
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<usize>,
    /// Draw the picture that was sent.
    #[arg(long)]
    pub(crate) show: bool,
    /// Write the answer to a file.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Fail where this device is missing: cpu, gpu, vulkan:0.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Build {
    /// The plugin's directory.
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Write the component there.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The plugin's name, and the directory that is made.
    pub(crate) name: String,
    /// What to start from.
    #[arg(long, default_value = "classifier", value_parser = clap::builder::PossibleValuesParser::new(templates::names()))]
    pub(crate) template: String,
}

#[derive(Debug, Args)]
pub(crate) struct Worker {
    /// The state directory.
    #[arg(long)]
    pub(crate) home: PathBuf,
    /// The directory of model versions.
    #[arg(long)]
    pub(crate) models: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_is_well_formed() {
        Cli::command().debug_assert();
    }
}
