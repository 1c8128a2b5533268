//! `saggar plugins` on the command line.

use clap::{Args, Subcommand};

use super::Run;

#[derive(Debug, Subcommand)]
pub(crate) enum Plugins {
    /// List the plugins that the server has, and which are known to go on where they were interrupted.
    Ls,
    /// Show that a plugin goes on where it was interrupted: its training is done twice, once in peace and once preempted,
    /// and must come to the same, bit by bit.
    Test(Box<TestResume>),
}

#[derive(Debug, Args)]
pub(crate) struct TestResume {
    /// How often the second training is preempted.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16), value_name = "N")]
    pub(crate) preemptions: u32,
    #[command(flatten)]
    pub(crate) run: Run,
}
