//! Arguments of the commands about the project file: `check`, `config`, `completion`, `dev`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;

use super::listen_address::parse_tcp_address;
use super::run::RunFlags;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The project file [default: saggar.toml in this directory or the nearest one above].
    pub(crate) file: Option<PathBuf>,
    /// Print the file's JSON Schema, for editors, instead of a check.
    #[arg(long, conflicts_with = "file")]
    pub(crate) schema: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// List every value that a run would use, with its source.
    Ls(ConfigLsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigLsArgs {
    /// List the values of `saggar run --task TASK`.
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    #[command(flatten)]
    pub(crate) options: RunFlags,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// The shell: bash, zsh, fish.
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManualArgs {
    /// The directory, which must exist.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// The task that trains the first version [default: the task named train, or the only one].
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// The address of the server that this starts: 5000, 127.0.0.1:5000, or 0 for a free port. A server that already
    /// runs there is used. With --host or SAGGAR_HOST, that server is used and none is started.
    #[arg(long, env = "SAGGAR_ADDR", default_value = "127.0.0.1:5000", value_parser = parse_tcp_address, value_name = "ADDRESS")]
    pub(crate) addr: SocketAddr,
    /// The state directory of the server that this starts [default: .saggar in the project's directory].
    #[arg(long, env = "SAGGAR_HOME", value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// The device that computes predictions.
    #[arg(long, env = "SAGGAR_DEVICE", default_value = "auto", value_name = "DEVICE")]
    pub(crate) device: String,
}
