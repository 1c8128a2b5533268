//! The commands about the project file on the command line: `check`, `config`, `completion`, `dev`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;

use super::run::RunFlags;
use crate::commands::listeners::parse_tcp_address;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The project file; saggar.toml of this directory or the nearest above it where it is left out.
    pub(crate) file: Option<PathBuf>,
    /// Print the file's JSON Schema, for editors, instead.
    #[arg(long, conflicts_with = "file")]
    pub(crate) schema: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// List every value that a run would have, with its source.
    Ls(ConfigLsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigLsArgs {
    /// As `saggar run --task TASK` would have them.
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
pub(crate) struct DevArgs {
    /// The task that trains the first version; the one that is called train, or the only one, where it is left out.
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// Where the server listens that this starts: 5000, 127.0.0.1:5000, or 0 for a free port; one that runs there already is used. With --host or SAGGAR_HOST it starts none and talks to that one.
    #[arg(long, env = "SAGGAR_ADDR", default_value = "127.0.0.1:5000", value_parser = parse_tcp_address, value_name = "ADDRESS")]
    pub(crate) addr: SocketAddr,
    /// The state directory of the server that this starts; .saggar in the project's directory where it is left out.
    #[arg(long, env = "SAGGAR_HOME", value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// The device that predicts.
    #[arg(long, env = "SAGGAR_DEVICE", default_value = "auto", value_name = "DEVICE")]
    pub(crate) device: String,
}
