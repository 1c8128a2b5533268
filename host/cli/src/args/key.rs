//! Arguments of `saggar key`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use saggar_store::keys::{KeyScope, RateLimit, RequestQuota};

use super::database::{DATABASE_URL_VARIABLE, DatabaseUrl};
use saggar_project::units;

/// Manage API keys for clients of this machine's server, and keys that sign files. API keys are stored in the state directory, so no server needs to
/// run; a running server applies changes at once.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Create a key, and print it this one time.
    Create(KeyCreateArgs),
    /// List keys.
    Ls(KeyHomeArgs),
    /// Revoke a key.
    Revoke(KeyRevokeArgs),
    /// Make a key pair that signs files, such as bundles of models: NAME.key and NAME.pub.
    Pair(KeyPairArgs),
    /// Sign a file. The signature is written beside it, with .minisig added to its name.
    Sign(KeySignArgs),
}

#[derive(Debug, Args)]
pub(crate) struct KeyHomeArgs {
    /// The state directory.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// The database of PostgreSQL that the servers have their keys in.
    #[arg(long, env = DATABASE_URL_VARIABLE, hide_env_values = true, value_name = "URL")]
    pub(crate) database: Option<DatabaseUrl>,
}

#[derive(Debug, Args)]
pub(crate) struct KeyCreateArgs {
    /// The key's name.
    pub(crate) name: String,
    /// What the key allows: predict, jobs:read, jobs:write, models:write, metrics:read, admin. Several are separated by
    /// commas.
    #[arg(long, required = true, value_delimiter = ',', value_name = "SCOPE,...")]
    pub(crate) scope: Vec<KeyScope>,
    /// A project whose jobs the key can see and submit [default: all projects]. Can be given several times, or with
    /// commas.
    #[arg(long, value_delimiter = ',', value_name = "PROJECT,...")]
    pub(crate) project: Vec<String>,
    /// Maximum request rate: 100/s, 600/m, 5000/h.
    #[arg(long, value_name = "N/TIME")]
    pub(crate) rate: Option<RateLimit>,
    /// Maximum requests per day or month, in UTC: 10000/d, 1000000/month.
    #[arg(long, value_name = "N/TIME")]
    pub(crate) quota: Option<RequestQuota>,
    /// Maximum jobs submitted with the key that run at once; further jobs wait.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) max_running_jobs: Option<u32>,
    /// Maximum device seconds of all jobs submitted with the key, over its lifetime; further jobs wait.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) gpu_seconds: Option<u64>,
    /// How long the key is valid: 30d [default: without limit].
    #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) expires: Option<Duration>,
    #[command(flatten)]
    pub(crate) place: KeyHomeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyPairArgs {
    /// The files' path without their ending: `release` makes release.key and release.pub.
    pub(crate) name: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct KeySignArgs {
    /// The file to sign.
    pub(crate) file: PathBuf,
    /// The secret key that `saggar key pair` made.
    #[arg(long, env = "SAGGAR_SECRET_KEY", value_name = "FILE")]
    pub(crate) secret_key: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct KeyRevokeArgs {
    /// The key's name.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: KeyHomeArgs,
}
