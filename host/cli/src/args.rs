//! The command line: global options and commands.

mod audit;
mod backup;
mod bench;
mod bench_serve;
mod chart;
mod compile_child;
mod data;
mod database;
mod deploy;
#[cfg(test)]
mod deployed_commands;
mod help;
#[cfg(test)]
mod hints;
mod inspect;
mod job;
mod jobs;
mod key;
mod label;
mod listen_address;
mod machine;
mod migrate;
mod models;
mod output;
mod pipeline;
mod plugins;
mod predict;
mod project;
mod rank_network;
#[cfg(test)]
mod reference;
pub(crate) mod renamed;
mod run;
mod serve;
mod sweep;
mod top;
mod verify;
mod without;
mod worker;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use saggar_plugin::compiler;

pub(crate) use audit::AuditArgs;
pub(crate) use backup::{BackupArgs, RestoreArgs, UpgradeCheckArgs};
pub(crate) use bench::{BenchCommand, BenchDataArgs, BenchDiffArgs, BenchInferArgs, BenchScaleArgs, BenchTrainArgs};
pub(crate) use bench_serve::{ArrivalsArg, BenchProtocol, BenchServeArgs};
pub(crate) use chart::{ChartFileArgs, ChartLookArgs, CurveArgs};
pub(crate) use compile_child::CompileChildArgs;
#[cfg(test)]
pub(crate) use data::ImageSize;
pub(crate) use data::{
    DataAddArgs, DataCommand, DataExportArgs, DataFetchArgs, DataPushArgs, DataRmArgs, DataTableArgs, RecipeCommand,
};
pub(crate) use database::{DATABASE_URL_VARIABLE, DatabaseArgs, DatabaseUrl};
pub(crate) use deploy::{DeployCommand, DeployHelmArgs, DeployInstallationArgs, DeployKubernetesArgs};
pub(crate) use help::command;
pub(crate) use inspect::{CompileStage, InspectArgs, TargetArg};
pub(crate) use job::{
    CompareArgs, CostArgs, DiffArgs, ExperimentCommand, GcArgs, LoggedArgs, MetricsArgs, NoteArgs, PauseArgs,
    ReplayArgs, RestartArgs, RmArgs, ScheduleCommand, SecretCommand, TagArgs, WaitArgs,
};
pub(crate) use jobs::{JobNamesArgs, LogsArgs, NotebookArgs, PsArgs, StatusArgs};
pub(crate) use key::{KeyCommand, KeyCreateArgs, KeyHomeArgs, KeyPairArgs, KeyRevokeArgs, KeySignArgs};
pub(crate) use listen_address::ListenAddress;
pub(crate) use machine::DoctorArgs;
pub(crate) use migrate::{MigrateArgs, MigrationAddress};
pub(crate) use models::{BundleImportArgs, ImportArgs, ModelExportArgs, ModelPushArgs, ModelRmArgs, ModelsCommand};
pub(crate) use output::{CheckpointsArgs, OutputCommand, OutputGetArgs, OutputKind, OutputListArgs, OutputTailArgs};
pub(crate) use pipeline::{GraphFormat, PipelineCommand, PipelineGraphArgs, PipelineRunArgs, PipelineScheduleArgs};
pub(crate) use plugins::{BuildArgs, InitArgs, PluginsCommand, TestResumeArgs};
pub(crate) use predict::PredictArgs;
pub(crate) use project::{CheckArgs, CompletionArgs, ConfigCommand, ConfigLsArgs, DevArgs, ManualArgs};
pub(crate) use rank_network::RankNetworkArgs;
pub(crate) use run::{RunArgs, RunFlags, RunMode};
pub(crate) use serve::{AccessLogStyle, FollowMode, LogFormat, ServeArgs};
pub(crate) use sweep::{SweepArgs, SweepCommand, SweepMethodArg, SweepStartArgs};
pub(crate) use top::{TopArgs, TopViewArg};
pub(crate) use verify::VerifyArgs;
pub(crate) use worker::{
    AttemptArgs, WorkerCommand, WorkerDrainArgs, WorkerHostArgs, WorkerJoinArgs, WorkerOfferArgs, WorkerRunArgs,
};

/// Train and serve machine-learning models that are sandboxed WebAssembly plugins.
#[derive(Debug, Parser)]
#[command(name = "saggar", version, propagate_version = true, disable_help_subcommand = true)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Cli {
    /// The server's URL [default: http://127.0.0.1:5000]. `saggar top` accepts several.
    #[arg(long, global = true, env = "SAGGAR_HOST", value_name = "URL")]
    pub(crate) host: Vec<String>,
    /// The API key to send to the server.
    #[arg(long, global = true, env = "SAGGAR_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// A file with CA certificates in PEM form, to trust instead of the public certificate authorities.
    #[arg(long, global = true, env = "SAGGAR_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Print JSON with the field names of the REST interface.
    #[arg(long, global = true, env = "SAGGAR_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    pub(crate) json: bool,
    /// Print names only, without notes.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Log more (once: debug, twice: trace).
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Print without colours.
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
    /// Show jobs, models and devices live in the terminal, with charts of their series.
    Top(TopArgs),
    /// Print a job's log.
    Logs(LogsArgs),
    /// Stop jobs: each saves its state and ends.
    Stop(JobNamesArgs),
    /// Wait until a job is over.
    Wait(WaitArgs),
    /// Submit a job again, with changes.
    Restart(RestartArgs),
    /// Print the address of a running notebook, which `saggar run --mode notebook` starts.
    Notebook(NotebookArgs),
    /// Repeat steps of a training, and compare them with what it recorded.
    Replay(ReplayArgs),
    /// Preempt running jobs: each saves its state and is queued again.
    Preempt(JobNamesArgs),
    /// Pause jobs: each saves its state and waits, without a device, until it is resumed.
    Pause(PauseArgs),
    /// Let paused jobs continue.
    Resume(JobNamesArgs),
    /// Show the differences between the specifications of two jobs.
    Diff(DiffArgs),
    /// Compare jobs, pipeline runs or sweeps: what differs, and what came of them.
    Compare(CompareArgs),
    /// List experiments, and compare or remove their jobs.
    #[command(subcommand)]
    Experiment(ExperimentCommand),
    /// Set or remove tags of a job.
    Tag(TagArgs),
    /// Write a note about a job.
    Note(NoteArgs),
    /// Show a job's metric series.
    Metrics(MetricsArgs),
    /// List the images, tables and histograms that a job logged, or save them as files.
    Logged(LoggedArgs),
    /// Remove finished jobs with their logs, outputs and checkpoints.
    Rm(RmArgs),
    /// Remove old finished jobs.
    Gc(GcArgs),
    /// List the server's plugins, and test whether a plugin resumes after an interruption.
    #[command(subcommand)]
    Plugins(PluginsCommand),
    /// Show queues, and pools with the jobs that hold their slots.
    Queues,
    /// Show used storage, and the usage and limits of jobs.
    Quota,
    /// Compute what jobs cost at a price per hour.
    Cost(CostArgs),
    /// Check and run pipelines of the project file: steps in an order, from data to a deployment.
    #[command(name = "pipeline", subcommand)]
    Pipelines(PipelineCommand),
    /// Manage schedules, which submit jobs at set times.
    #[command(name = "schedule", subcommand)]
    Schedules(ScheduleCommand),
    /// Search for parameters of a training: run it with many, and compare a metric.
    Sweep(Box<SweepArgs>),
    /// Manage secrets that jobs can be allowed to read.
    #[command(subcommand)]
    Secret(SecretCommand),
    /// List and fetch files that a job wrote.
    #[command(name = "output", subcommand)]
    Outputs(OutputCommand),
    /// Manage datasets.
    #[command(subcommand)]
    Data(DataCommand),
    /// Manage models and their versions.
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Create a served model from an ONNX file.
    Import(ImportArgs),
    /// Request a prediction from a model.
    Predict(PredictArgs),
    /// Check a stored answer: which version made it, and whether that is still there and unchanged.
    Verify(VerifyArgs),
    /// Measure plugins on the devices of this machine, or a running server, and compare measurements.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Manage API keys for clients of a server.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Show who changed what on the servers. Needs a key with the scope admin, if the server requires keys.
    Audit(AuditArgs),
    /// Run jobs of a server on other hosts, called workers.
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Check this machine: devices, drivers, configuration and the state directory.
    Doctor(DoctorArgs),
    /// Copy a state directory, or the stores that servers share, to one file, also while servers use it.
    Backup(BackupArgs),
    /// Create a state directory from a backup.
    Restore(RestoreArgs),
    /// Copy a state directory to a database and a bucket that several servers share, or back.
    Migrate(MigrateArgs),
    /// Say whether this program can open a state directory, and what it would change in it, without changing anything.
    UpgradeCheck(UpgradeCheckArgs),
    /// Write manifests for Kubernetes, or a Helm chart, of servers and workers.
    #[command(subcommand)]
    Deploy(DeployCommand),
    /// Build a plugin into a component.
    Build(BuildArgs),
    /// Show how the compiler compiles the graphs of a plugin or a model.
    Inspect(Box<InspectArgs>),
    /// Create a new plugin from a template.
    Init(InitArgs),
    /// Build and serve the plugin of this directory's project, and rebuild whenever a source is saved.
    Dev(DevArgs),
    /// Check the project file saggar.toml.
    Check(CheckArgs),
    /// Show the values that commands use by default here, with their sources.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for a shell.
    Completion(CompletionArgs),
    /// Write the manual pages of all commands (packages contain them).
    #[command(hide = true)]
    Manual(ManualArgs),
    /// Say whether the server is ready: exit code 0, or 1 with the reasons.
    Health,
    /// Print the version of this program and of the server.
    Version,
    /// Print the devices of this machine (the server starts this).
    #[command(hide = true)]
    Devices,
    /// Compile the input from standard input, within limits (the server starts this).
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
