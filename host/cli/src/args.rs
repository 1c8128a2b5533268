//! The command line.

mod bench;
mod compile_child;
mod data;
mod help;
#[cfg(test)]
mod hints;
mod inspect;
mod job;
mod jobs;
mod key;
mod machine;
mod models;
mod output;
mod plugins;
mod predict;
mod project;
mod run;
mod serve;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use saggar_plugin::compiler;

pub(crate) use bench::{Bench, BenchInfer, BenchTrain};
pub(crate) use compile_child::CompileChild;
pub(crate) use data::{Data, DataAdd, DataGet, DataPull, DataPush, DataRm};
pub(crate) use help::command;
pub(crate) use inspect::{Inspect, Stage, TargetName};
pub(crate) use job::{Compare, Cost, Diff, Gc, Metrics, Restart, Rm, Schedules, Secret, Wait};
pub(crate) use jobs::{JobNames, Logs, Ps, Status};
pub(crate) use key::{Key, KeyCreate, KeyHome, KeyRevoke};
pub(crate) use machine::{Doctor, Worker};
pub(crate) use models::{Import, ModelRm, Models};
pub(crate) use output::{Checkpoints, Kind, OutputGet, OutputList, OutputTail, Outputs};
pub(crate) use plugins::{Build, Env, Init, Plugins, TestResume};
pub(crate) use predict::Predict;
pub(crate) use project::{Check, Completion, Config, ConfigLs, Dev};
pub(crate) use run::{Mode, Run, RunFlags};
pub(crate) use serve::{Follow, Serve};

/// Train and serve machine-learning models that are sandboxed WebAssembly plugins.
#[derive(Debug, Parser)]
#[command(name = "saggar", version, propagate_version = true, disable_help_subcommand = true)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Cli {
    /// The server to talk to [default: http://127.0.0.1:5000].
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
    /// Have jobs save their state and end.
    Stop(JobNames),
    /// Wait until a job is over.
    Wait(Wait),
    /// Do a job again, with changes.
    Restart(Restart),
    /// Have running jobs save their state and be queued again.
    Preempt(JobNames),
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
    /// Print the version of this program, and that of the server.
    Version,
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_is_well_formed() {
        Cli::command().debug_assert();
        command().debug_assert();
    }
}
