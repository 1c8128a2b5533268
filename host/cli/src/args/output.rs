//! Arguments of `saggar output`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum OutputCommand {
    /// List a job's outputs.
    Ls(OutputListArgs),
    /// Print a file, and with --follow what is appended to it.
    Tail(OutputTailArgs),
    /// Fetch one file, all files, or a checkpoint.
    Get(OutputGetArgs),
    /// List a job's checkpoints.
    Checkpoints(CheckpointsArgs),
}

/// A kind of job output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputKind {
    /// Files that the job wrote
    File,
    /// Model versions that the job published
    Model,
    /// Values that the job returned, if its plugin is a step
    Value,
}

#[derive(Debug, Args)]
pub(crate) struct OutputListArgs {
    /// The job: `digits-7`, or `7` in a project's directory.
    pub(crate) job: String,
    /// A folder among the files, such as `/pictures`: list only what is in it. Names with `/` act as folders.
    #[arg(conflicts_with = "kind")]
    pub(crate) path: Option<String>,
    /// The kind of outputs to list.
    #[arg(long, value_enum, default_value_t = OutputKind::File)]
    pub(crate) kind: OutputKind,
}

#[derive(Debug, Args)]
pub(crate) struct OutputTailArgs {
    /// The job: `digits-7`, or `7` in a project's directory.
    pub(crate) job: String,
    /// The file's path, as in `saggar output ls`.
    pub(crate) path: String,
    /// Print new content until the job ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OutputGetArgs {
    /// The job: `digits-7`, or `7` in a project's directory.
    pub(crate) job: String,
    /// The file's path, as in `saggar output ls` [default: all files].
    pub(crate) path: Option<String>,
    /// The directory to write into; a file of the same name is replaced.
    #[arg(short, long, default_value = ".", value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Fetch a checkpoint instead, as a safetensors file: a step, latest or best. The job can be running.
    #[arg(long, conflicts_with = "path", value_name = "STEP")]
    pub(crate) checkpoint: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckpointsArgs {
    /// The job: `digits-7`.
    pub(crate) job: String,
    /// Verify every byte of the checkpoints.
    #[arg(long)]
    pub(crate) verify: bool,
}
