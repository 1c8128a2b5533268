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

pub(crate) use bench::{BenchCommand, BenchInferArgs, BenchTrainArgs};
pub(crate) use compile_child::CompileChildArgs;
pub(crate) use data::{DataAddArgs, DataCommand, DataGetArgs, DataPullArgs, DataPushArgs, DataRmArgs};
pub(crate) use help::command;
pub(crate) use inspect::{CompileStage, InspectArgs, TargetArg};
pub(crate) use job::{
    CompareArgs, CostArgs, DiffArgs, GcArgs, MetricsArgs, RestartArgs, RmArgs, ScheduleCommand, SecretCommand, WaitArgs,
};
pub(crate) use jobs::{JobNamesArgs, LogsArgs, PsArgs, StatusArgs};
pub(crate) use key::{KeyCommand, KeyCreateArgs, KeyHomeArgs, KeyRevokeArgs};
pub(crate) use machine::{DoctorArgs, WorkerArgs};
pub(crate) use models::{ImportArgs, ModelRmArgs, ModelsCommand};
pub(crate) use output::{CheckpointsArgs, OutputCommand, OutputGetArgs, OutputKind, OutputListArgs, OutputTailArgs};
pub(crate) use plugins::{BuildArgs, EnvCommand, InitArgs, PluginsCommand, TestResumeArgs};
pub(crate) use predict::PredictArgs;
pub(crate) use project::{CheckArgs, CompletionArgs, ConfigCommand, ConfigLsArgs, DevArgs};
pub(crate) use run::{RunArgs, RunFlags, RunMode};
pub(crate) use serve::{FollowMode, ServeArgs};

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
    pub(crate) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Serve models and run jobs.
    Serve(ServeArgs),
    /// Start a training job.
    Run(Box<RunArgs>),
    /// List jobs.
    #[command(visible_alias = "jobs")]
    Ps(PsArgs),
    /// Show one job with its attempts.
    Status(StatusArgs),
    /// Print a job's log.
    Logs(LogsArgs),
    /// Have jobs save their state and end.
    Stop(JobNamesArgs),
    /// Wait until a job is over.
    Wait(WaitArgs),
    /// Do a job again, with changes.
    Restart(RestartArgs),
    /// Have running jobs save their state and be queued again.
    Preempt(JobNamesArgs),
    /// Show what differs between what two jobs were asked to do.
    Diff(DiffArgs),
    /// Compare jobs: the parameters that differ, and their last metrics.
    Compare(CompareArgs),
    /// Show a job's series.
    Metrics(MetricsArgs),
    /// Remove jobs that are over, with their logs, outputs and checkpoints.
    Rm(RmArgs),
    /// Remove jobs that are no longer wanted.
    Gc(GcArgs),
    /// Plugins that the server has, and whether they go on where they were interrupted.
    #[command(subcommand)]
    Plugins(PluginsCommand),
    /// Show queues, and pools with the jobs that have their slots.
    Queues,
    /// Show what is stored, and what jobs took and may take.
    Quota,
    /// Multiply what jobs took with a price.
    Cost(CostArgs),
    /// Jobs at times of a clock.
    #[command(name = "schedule", subcommand)]
    Schedules(ScheduleCommand),
    /// Secrets that jobs may be granted.
    #[command(subcommand)]
    Secret(SecretCommand),
    /// Files that a job wrote.
    #[command(name = "output", subcommand)]
    Outputs(OutputCommand),
    /// Datasets.
    #[command(subcommand)]
    Data(DataCommand),
    /// Models and their versions.
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Make a served model of an ONNX file.
    Import(ImportArgs),
    /// Ask a model for a prediction.
    Predict(PredictArgs),
    /// Measure a plugin on the devices of this machine.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Keys that clients of a server need.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Tell what this machine has, and what is missing.
    Doctor(DoctorArgs),
    /// What a plugin can be built against here.
    #[command(subcommand)]
    Env(EnvCommand),
    /// Build a plugin into a component.
    Build(BuildArgs),
    /// Show what the compiler makes of a plugin's or model's graphs.
    Inspect(Box<InspectArgs>),
    /// Start a plugin of your own.
    Init(InitArgs),
    /// Build and serve the plugin of this directory's project, and again whenever a source is saved.
    Dev(DevArgs),
    /// Check the project file saggar.toml.
    Check(CheckArgs),
    /// What commands would take where nothing is said, and who says it.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a shell's completion script.
    Completion(CompletionArgs),
    /// Print the version of this program, and that of the server.
    Version,
    /// Print the devices of this machine (the server starts this).
    #[command(hide = true)]
    Devices,
    /// Run one attempt of a job (the server starts this).
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// Compile what standard input holds, within limits (the server starts this).
    #[command(hide = true, name = compiler::SUBCOMMAND)]
    CompileChild(CompileChildArgs),
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
