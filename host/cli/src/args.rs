//! The command line.

mod bench;
mod compile_child;
mod data;
mod inspect;
mod job;
mod key;
mod plugins;
mod predict;
mod project;
mod run;
mod serve;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use saggar_plugin::compiler;
use saggar_project::units;

use crate::commands::init::templates;

pub(crate) use bench::{Bench, BenchInfer, BenchTrain};
pub(crate) use compile_child::CompileChild;
pub(crate) use data::{Data, DataAdd, DataGet, DataPull, DataPush, DataRm};
pub(crate) use inspect::{Inspect, Stage, TargetName};
pub(crate) use job::{Compare, Cost, Diff, Gc, Metrics, Restart, Rm, Schedules, Secret, Wait};
pub(crate) use key::{Key, KeyCreate, KeyHome, KeyRevoke};
pub(crate) use plugins::{Plugins, TestResume};
pub(crate) use predict::Predict;
pub(crate) use project::{Check, Completion, Config, ConfigLs, Dev};
pub(crate) use run::{Mode, Run, RunFlags};
pub(crate) use serve::{Follow, Serve};

/// Train and serve machine-learning models that are sandboxed WebAssembly plugins.
#[derive(Debug, Parser)]
#[command(name = "saggar", version, propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// The server to talk to: http://127.0.0.1:5000 where nothing is said.
    #[arg(long, global = true, env = "SAGGAR_HOST", value_name = "URL")]
    pub(crate) host: Option<String>,
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
    Run(Box<Run>),
    /// List jobs.
    #[command(visible_alias = "jobs")]
    Ps(Ps),
    /// Show one job with its attempts.
    Status(Status),
    /// Print a job's log.
    Logs(Logs),
    /// Have a job save its state and end.
    Stop(JobName),
    /// Wait until a job is over.
    Wait(Wait),
    /// Do a job again, with changes.
    Restart(Restart),
    /// Have a running job save its state and be queued again.
    Preempt(JobName),
    /// Show what differs between what two jobs were asked to do.
    Diff(Diff),
    /// Compare jobs: the parameters that differ, and their last metrics.
    Compare(Compare),
    /// Show a job's series.
    Metrics(Metrics),
    /// Remove jobs that are over, with their logs, outputs and checkpoints.
    Rm(Rm),
    /// Remove jobs that are no longer wanted.
    Gc(Gc),
    /// Plugins that the server has, and whether they go on where they were interrupted.
    #[command(subcommand)]
    Plugins(Plugins),
    /// Show queues, and pools with the jobs that have their slots.
    Queues,
    /// Show what is stored, and what jobs took and may take.
    Quota,
    /// Multiply what jobs took with a price.
    Cost(Cost),
    /// Jobs at times of a clock.
    #[command(name = "schedule", subcommand)]
    Schedules(Schedules),
    /// Secrets that jobs may be granted.
    #[command(subcommand)]
    Secret(Secret),
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
    /// Measure a plugin on the devices of this machine.
    #[command(subcommand)]
    Bench(Bench),
    /// Keys that clients of a server need.
    #[command(subcommand)]
    Key(Key),
    /// Tell what this machine has, and what is missing.
    Doctor(Doctor),
    /// What a plugin can be built against here.
    #[command(subcommand)]
    Env(Env),
    /// Build a plugin into a component.
    Build(Build),
    /// Show what the compiler makes of a plugin's or model's graphs.
    Inspect(Box<Inspect>),
    /// Start a plugin of your own.
    Init(Init),
    /// Build and serve the plugin of this directory's project, and again whenever a source is saved.
    Dev(Dev),
    /// Check the project file saggar.toml.
    Check(Check),
    /// What commands would take where nothing is said, and who says it.
    #[command(subcommand)]
    Config(Config),
    /// Print a shell's completion script.
    Completion(Completion),
    /// Print the devices of this machine (the server starts this).
    #[command(hide = true)]
    Devices,
    /// Run one attempt of a job (the server starts this).
    #[command(hide = true)]
    Worker(Worker),
    /// Compile what standard input holds, within limits (the server starts this).
    #[command(hide = true, name = compiler::SUBCOMMAND)]
    CompileChild(CompileChild),
}

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Finished jobs too.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Only jobs in this state.
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// What holds memory or slots although nobody asked anything of it for a minute: models that are awake, and why they
    /// do not sleep, and jobs that do no steps.
    #[arg(long, conflicts_with_all = ["all", "state", "experiment"])]
    pub(crate) idle: bool,
    /// Only jobs of this experiment, finished ones too.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) experiment: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct JobName {
    /// The job: `digits-7`; in a project's directory `7`.
    pub(crate) job: String,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The job: `digits-7`; in a project's directory `7`.
    pub(crate) job: String,
    /// Print only this value: `spec`, `metrics.loss`.
    #[arg(long, value_name = "FIELD")]
    pub(crate) field: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The job: `digits-7`; in a project's directory `7`.
    pub(crate) job: String,
    /// Go on until the job ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only this attempt's.
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// Only those of the attempt before the newest.
    #[arg(short, long, conflicts_with = "attempt")]
    pub(crate) previous: bool,
    /// Only lines from then on: 10m ago, or 2026-11-21T12:03:13Z.
    #[arg(long, value_parser = crate::units::since, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only the last lines.
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u64>,
    /// With the time of each line.
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// With the job and the attempt of each line.
    #[arg(long)]
    pub(crate) prefix: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Outputs {
    /// List them.
    Ls(OutputList),
    /// Print a file, and what is added to it.
    Tail(OutputTail),
    /// Fetch one, or all of them, or a checkpoint.
    Get(OutputGet),
    /// List a job's checkpoints.
    Checkpoints(Checkpoints),
}

/// What a job leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Files that it wrote
    File,
    /// Model versions that it published
    Model,
}

#[derive(Debug, Args)]
pub(crate) struct OutputList {
    /// The job: `digits-7`; in a project's directory `7`.
    pub(crate) job: String,
    /// Which of what it left.
    #[arg(long, value_enum, default_value_t = Kind::File)]
    pub(crate) kind: Kind,
}

#[derive(Debug, Args)]
pub(crate) struct OutputTail {
    /// The job: `digits-7`; in a project's directory `7`.
    pub(crate) job: String,
    /// The file's path, as `output ls` shows it.
    pub(crate) path: String,
    /// Go on until the job ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OutputGet {
    /// The job: `digits-7`; in a project's directory `7`.
    pub(crate) job: String,
    /// The file's path, as `output ls` shows it; all files where it is left out.
    pub(crate) path: Option<String>,
    /// Put files there; a file of the same name is replaced.
    #[arg(short, long, default_value = ".", value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Fetch a checkpoint instead, as a safetensors file: a step, latest or best. The job may be running.
    #[arg(long, conflicts_with = "path", value_name = "STEP")]
    pub(crate) checkpoint: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Checkpoints {
    /// The job: `digits-7`.
    pub(crate) job: String,
    /// Read every byte of them.
    #[arg(long)]
    pub(crate) verify: bool,
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
    /// Say which projects a model belongs to: keys that are limited to others do not change it.
    Projects {
        /// The model.
        model: String,
        /// A project. May be given several times; without any, the model belongs to none.
        #[arg(long = "project", value_name = "PROJECT", value_delimiter = ',')]
        projects: Vec<String>,
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

#[derive(Debug, Subcommand)]
pub(crate) enum Env {
    /// List the worlds, each with its version, and the interfaces that a plugin of it exports and is given.
    Ls,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Fail where this device is missing: cpu, gpu, vulkan:0.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Mend what can be mended without a risk: make the state directory, write a configuration.
    #[arg(long)]
    pub(crate) fix: bool,
    /// The state directory to look at.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// Look at one device alone (doctor starts this).
    #[arg(long, hide = true, value_name = "DEVICE")]
    pub(crate) probe: Option<String>,
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
    /// Bytes that may be stored together.
    #[arg(long)]
    pub(crate) storage_quota: Option<u64>,
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
