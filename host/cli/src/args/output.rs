//! Arguments of `saggar output`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum OutputCommand {
    /// List them.
    Ls(OutputListArgs),
    /// Print a file, and what is added to it.
    Tail(OutputTailArgs),
    /// Fetch one, or all of them, or a checkpoint.
    Get(OutputGetArgs),
    /// List a job's checkpoints.
    Checkpoints(CheckpointsArgs),
}

/// What a job leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputKind {
    /// Files that it wrote
    File,
    /// Model versions that it published
    Model,
}

#[derive(Debug, Args)]
pub(crate) struct OutputListArgs {
    /// The job: `digits-7`; in a project's directory `7`.
    pub(crate) job: String,
    /// Which of what it left.
    #[arg(long, value_enum, default_value_t = OutputKind::File)]
    pub(crate) kind: OutputKind,
}

#[derive(Debug, Args)]
pub(crate) struct OutputTailArgs {
    /// The job: `digits-7`; in a project's directory `7`.
    pub(crate) job: String,
    /// The file's path, as `output ls` shows it.
    pub(crate) path: String,
    /// Go on until the job ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OutputGetArgs {
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
pub(crate) struct CheckpointsArgs {
    /// The job: `digits-7`.
    pub(crate) job: String,
    /// Read every byte of them.
    #[arg(long)]
    pub(crate) verify: bool,
}
