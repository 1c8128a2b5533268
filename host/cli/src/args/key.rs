//! `saggar key` on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use saggar_store::keys::{KeyScope, RateLimit, RequestQuota};

use saggar_project::units;

/// Keys that clients of the server here need. They are kept in the state directory, so no server need run; one that does
/// takes changes up at once.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key, and print it this once.
    Create(KeyCreateArgs),
    /// List keys.
    Ls(KeyHomeArgs),
    /// End a key.
    Revoke(KeyRevokeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct KeyHomeArgs {
    /// The state directory.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct KeyCreateArgs {
    /// What to call it.
    pub(crate) name: String,
    /// What it may do: predict, jobs:read, jobs:write, models:write, metrics:read, admin. Several with commas.
    #[arg(long, required = true, value_delimiter = ',', value_name = "SCOPE,...")]
    pub(crate) scope: Vec<KeyScope>,
    /// The projects whose jobs it sees and submits; those of all where it is left out. Once for each, or with commas.
    #[arg(long, value_delimiter = ',', value_name = "PROJECT,...")]
    pub(crate) project: Vec<String>,
    /// The most requests in a short time: 100/s, 600/m, 5000/h.
    #[arg(long, value_name = "N/TIME")]
    pub(crate) rate: Option<RateLimit>,
    /// The most requests in a day or month of UTC: 10000/d, 1000000/month.
    #[arg(long, value_name = "N/TIME")]
    pub(crate) quota: Option<RequestQuota>,
    /// The most jobs submitted with it that run at once; more wait.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) max_running_jobs: Option<u32>,
    /// The most device seconds that jobs submitted with it take, ever; then they wait.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) gpu_seconds: Option<u64>,
    /// How long it is good for: 30d.
    #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) expires: Option<Duration>,
    #[command(flatten)]
    pub(crate) place: KeyHomeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyRevokeArgs {
    /// The key.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: KeyHomeArgs,
}
