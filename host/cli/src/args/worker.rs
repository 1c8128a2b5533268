//! Arguments of `saggar worker`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use saggar_jobs::launcher::ATTEMPT_SUBCOMMAND;
use saggar_jobs::worker::WorkerLocations;
use saggar_store::records::HostReserve;

use super::database::{DATABASE_URL_VARIABLE, DatabaseArgs, DatabaseUrl};
use super::label::parse_label;
use super::rank_network::RankNetworkArgs;
use super::serve::LogFormat;

/// Run jobs of a server on other hosts, called workers.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// Run jobs of a server on this host, until it is stopped or drained. The server must have been started with --database.
    /// It gives this host the password of its database and the credentials of its bucket, so join only hosts that you trust
    /// like the server itself.
    Join(WorkerJoinArgs),
    /// Run one attempt of one job and end with its exit code, for batch systems. The settings are those of a server:
    /// SAGGAR_DATABASE_URL, SAGGAR_OBJECTS. If another process runs the job already, ends with 0.
    Run(WorkerRunArgs),
    /// Let a host take no new jobs. Its running jobs save their state and are queued again, and a worker then ends.
    Drain(WorkerDrainArgs),
    /// Run jobs with settings from the environment (worker join starts this).
    #[command(hide = true)]
    Host(WorkerHostArgs),
    /// Run the process of one attempt (servers and workers start this).
    #[command(hide = true, name = ATTEMPT_SUBCOMMAND)]
    Attempt(AttemptArgs),
}

/// What a worker offers to jobs.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkerOfferArgs {
    /// A label for jobs and pools that require it: gpu=a100. Can be given several times. The labels device and preemptible
    /// exist without it.
    #[arg(long = "label", value_parser = parse_label, value_name = "NAME=VALUE")]
    pub(crate) labels: Vec<(String, String)>,
    /// This machine can vanish at any time, such as a spot instance: only preemptible jobs run here, unless --reserve none
    /// is given.
    #[arg(long)]
    pub(crate) preemptible: bool,
    /// The jobs that this host is reserved for: none, or preemptible-only.
    #[arg(long, value_name = "WHICH")]
    pub(crate) reserve: Option<HostReserve>,
    /// The slots of each pool on this host [default: those of the server's pools, and 1 of the pool any].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64), value_name = "N")]
    pub(crate) slots: Option<u32>,
    /// The device of jobs that run in pools without a device: cpu, vulkan:0 [default: the one that a job asks for].
    #[arg(long, env = "SAGGAR_DEVICE", value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// The state directory of this host, with its cache.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar-worker", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// The format of the log on standard error.
    #[arg(long, env = "SAGGAR_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    #[command(flatten)]
    pub(crate) ranks: RankNetworkArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerJoinArgs {
    /// The URL of a server: http://10.0.0.5:5000.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// The name of this host [default: the host's name with a part that stays the same].
    #[arg(long, env = "SAGGAR_SERVER_NAME", value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) offer: WorkerOfferArgs,
    /// The URL of the server's database as this host reaches it [default: as the server reaches it].
    #[arg(long, env = DATABASE_URL_VARIABLE, hide_env_values = true, value_name = "URL")]
    pub(crate) database: Option<DatabaseUrl>,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerHostArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    /// The store of objects.
    #[arg(long, env = "SAGGAR_OBJECTS", value_name = "ADDRESS")]
    pub(crate) objects: Option<String>,
    #[command(flatten)]
    pub(crate) offer: WorkerOfferArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerRunArgs {
    /// The job: `digits-7`, or its identifier.
    pub(crate) job: String,
    /// Use a state directory below this folder that no other process uses, instead of --home. A batch system can so start
    /// several workers on one machine, and a later one finds the cache of an earlier one.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) homes: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) host: WorkerHostArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerDrainArgs {
    /// The name of the host; `saggar ps --workers` lists them.
    pub(crate) name: String,
    /// Let running jobs end first.
    #[arg(long)]
    pub(crate) finish: bool,
    /// Let the host take jobs again.
    #[arg(long, conflicts_with = "finish")]
    pub(crate) resume: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AttemptArgs {
    /// The state directory.
    #[arg(long)]
    pub(crate) home: PathBuf,
    /// The directory of model versions.
    #[arg(long)]
    pub(crate) models: PathBuf,
    /// Maximum bytes of everything that is stored.
    #[arg(long)]
    pub(crate) storage_quota: Option<u64>,
    /// The address of the store of objects.
    #[arg(long)]
    pub(crate) objects: Option<String>,
}

impl AttemptArgs {
    pub(crate) fn locations(&self) -> WorkerLocations {
        WorkerLocations {
            home: self.home.clone(),
            models: self.models.clone(),
            storage_quota: self.storage_quota,
            objects: self.objects.clone(),
        }
    }
}
