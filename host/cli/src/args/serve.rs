//! `saggar serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use saggar_project::units;

use crate::commands::listeners::ListenAddress;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen: a port of this machine, 5000, 0 for a free one; an address and a port, 0.0.0.0:5000; or a socket file
    /// such as unix:/run/saggar.sock, which only this user may open. Several times, or with commas, for several places.
    #[arg(long, env = "SAGGAR_ADDR", default_value = "127.0.0.1:5000", value_delimiter = ',', value_name = "ADDRESS")]
    pub(crate) addr: Vec<ListenAddress>,
    /// Speak HTTPS on ports, with this certificate in PEM form and those that vouch for it after it. New files are
    /// taken up while the server runs.
    #[arg(long, env = "SAGGAR_TLS_CERT", requires = "tls_key", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM form.
    #[arg(long, env = "SAGGAR_TLS_KEY", requires = "tls_cert", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The state directory: records, datasets, checkpoints, models.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// The directory of model versions to watch, if not the state directory's.
    #[arg(long, value_name = "DIR")]
    pub(crate) models: Option<PathBuf>,
    /// Jobs of the default queue that run at once.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) jobs: usize,
    /// The project file whose queues, pools and quota jobs run by; saggar.toml of this directory, if there is one.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What datasets, checkpoints, outputs, logs and models may take together: 100GiB.
    #[arg(long, value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) storage_quota: Option<u64>,
    /// The device that predicts: auto, cpu, gpu, vulkan:0.
    #[arg(long, env = "SAGGAR_DEVICE", default_value = "auto", value_name = "DEVICE")]
    pub(crate) device: String,
    /// End when standard input does, so that the server does not outlive who started it.
    #[arg(long, hide = true)]
    pub(crate) end_with_input: bool,
    /// Kill workers that give no sign of life for so long, instead of a minute.
    #[arg(long, hide = true, value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) worker_silence: Option<Duration>,
    /// Memory that requests may take together, from their bodies to their answers: 512MiB. By default a quarter of what the
    /// machine or control group has left at the start beside 192MiB, 64MiB to 4GiB. One client gets half of it at most.
    #[arg(long, value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) request_memory_limit: Option<u64>,
    /// Device memory that all models may hold together: 2GiB. Those that nobody asked for longest sleep where it is short.
    /// By default, on the device cpu and on software adapters, half of what the machine or control group has left at the start beside 192MiB.
    #[arg(long, value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) models_memory: Option<u64>,
    /// How long a model version may take to load before it is given up: 60s.
    #[arg(long, default_value = "60s", value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) load_timeout: Duration,
    /// How long an import of an ONNX file may take: 600s.
    #[arg(long, default_value = "600s", value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) import_timeout: Duration,
    /// The plugin that reads ONNX files; by default it is looked for beside the program.
    #[arg(long, env = "SAGGAR_ONNX_PLUGIN", value_name = "FILE")]
    pub(crate) onnx_plugin: Option<PathBuf>,
    /// Where events of predictions may be sent, by the beginning of the address: https://example.com/hooks. May be given
    /// several times; without it none are sent.
    #[arg(long = "webhooks-allow", value_name = "ADDRESS")]
    pub(crate) webhooks_allow: Vec<saggar_serve::WebhookPrefix>,
    /// Ask for keys on this machine too; elsewhere they are asked for anyway.
    #[arg(long)]
    pub(crate) require_keys: bool,
    /// Ask for no keys, wherever the server listens.
    #[arg(long, conflicts_with = "require_keys")]
    pub(crate) insecure: bool,
    /// A name besides localhost that requests without a key may come for, such as that which a proxy passes on. May be
    /// given several times.
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// Which version of a model answers where nobody promoted one: the newest as soon as it is published, or only what is
    /// promoted, in which case the version that answered before goes on.
    #[arg(long, value_enum, default_value_t = FollowMode::Newest, value_name = "WHICH")]
    pub(crate) follow: FollowMode,
    /// Answer a request for a version that is stored and not loaded with 404, instead of loading it.
    #[arg(long)]
    pub(crate) no_load_on_demand: bool,
}

/// Which version of a model answers where nobody promoted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FollowMode {
    /// The newest one.
    Newest,
    /// Only what `saggar models promote` names.
    Promoted,
}
