//! Arguments of the commands about plugins: `plugins`, `env`, `build`, `init`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::RunArgs;
use crate::commands::init::templates;

#[derive(Debug, Subcommand)]
pub(crate) enum PluginsCommand {
    /// List the plugins that the server has, and which are known to go on where they were interrupted.
    Ls,
    /// Show that a plugin goes on where it was interrupted: its training is done twice, once in peace and once preempted,
    /// and must come to the same, bit by bit.
    Test(Box<TestResumeArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct TestResumeArgs {
    /// How often the second training is preempted.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16), value_name = "N")]
    pub(crate) preemptions: u32,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EnvCommand {
    /// List the worlds, each with its version, and the interfaces that a plugin of it exports and is given.
    Ls,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The plugin's directory.
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Write the component there.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The plugin's name, and the directory that is made; this directory, which must be empty, and its name where it is left
    /// out.
    pub(crate) name: Option<String>,
    /// What to start from.
    #[arg(long, default_value = "classifier", value_parser = clap::builder::PossibleValuesParser::new(templates::possible_values()))]
    pub(crate) template: String,
}
