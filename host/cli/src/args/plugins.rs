//! Arguments of the commands about plugins: `plugins`, `build`, `init`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::RunArgs;
use crate::commands::init::templates;

#[derive(Debug, Subcommand)]
pub(crate) enum PluginsCommand {
    /// List the server's plugins and the reference plugins, and whether each is known to resume after an interruption.
    Ls,
    /// Show a plugin: its digest, its parameters with their values, default and meaning, and the data that it reads.
    Show {
        /// A reference plugin, the name or the first digits of the digest of a plugin that the server has, a component,
        /// or the directory of a plugin.
        plugin: String,
    },
    /// List the worlds, each with its version and the interfaces that a plugin of it exports and imports.
    Worlds,
    /// Test that a plugin resumes after an interruption: its training runs twice, once without and once with
    /// preemptions, and both results must be the same bit by bit.
    Test(Box<TestResumeArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct TestResumeArgs {
    /// How often to preempt the second training.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16), value_name = "N")]
    pub(crate) preemptions: u32,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The plugin's directory.
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// The file to write the component to.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The plugin's name, and the directory to create [default: this directory, which must be empty, and its name].
    pub(crate) name: Option<String>,
    /// The template to start from.
    #[arg(long, default_value = "classifier", value_parser = clap::builder::PossibleValuesParser::new(templates::possible_values()))]
    pub(crate) template: String,
}
