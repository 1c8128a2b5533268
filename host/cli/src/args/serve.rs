//! Arguments of `saggar serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use saggar_fetch::{FetchPolicy, UrlPrefix};
use saggar_project::units;

use super::database::DatabaseArgs;
use super::label::parse_label;
use super::listen_address::ListenAddress;
use super::rank_network::RankNetworkArgs;
use super::without::WithoutArgs;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The address to listen on: a port of this machine, 5000, or 0 for a free one; an address and a port,
    /// 0.0.0.0:5000; a socket file such as unix:/run/saggar.sock, which only this user can open; or systemd, for the
    /// sockets of a socket unit. Can be given several times, or with commas.
    #[arg(
        long,
        visible_alias = "port",
        env = "SAGGAR_ADDR",
        default_value = "127.0.0.1:5000",
        value_delimiter = ',',
        value_name = "ADDRESS"
    )]
    pub(crate) addr: Vec<ListenAddress>,
    /// Serve HTTPS on ports, with this certificate in PEM form, followed by its intermediate certificates. New files
    /// are loaded while the server runs.
    #[arg(long, env = "SAGGAR_TLS_CERT", requires = "tls_key", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM form.
    #[arg(long, env = "SAGGAR_TLS_KEY", requires = "tls_cert", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The state directory: records, datasets, checkpoints, models.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    /// A label of this server for jobs and pools that require it: gpu=a100. Can be given several times.
    #[arg(long = "label", value_parser = parse_label, value_name = "NAME=VALUE")]
    pub(crate) labels: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) ranks: RankNetworkArgs,
    /// The bucket of datasets, models, plugins, checkpoints, outputs and logs: s3://BUCKET/PREFIX, with credentials from
    /// the variables of Amazon's programs, such as AWS_ACCESS_KEY_ID, and the store's address in AWS_ENDPOINT_URL if it
    /// is not Amazon's [default: files of the state directory].
    #[arg(long, env = "SAGGAR_OBJECTS", value_name = "ADDRESS")]
    pub(crate) objects: Option<String>,
    /// The directory of model versions to watch [default: that of the state directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) models: Option<PathBuf>,
    /// Jobs of the default queue that run at once.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) jobs: usize,
    /// Notebooks that run at once: JupyterLab, in a sandbox of bubblewrap, for keys that can submit jobs. 0 refuses
    /// notebooks.
    #[arg(long, env = "SAGGAR_NOTEBOOKS", default_value_t = 0, value_name = "N")]
    pub(crate) notebooks: u32,
    /// The project file with the queues, pools and quota of the server [default: saggar.toml in this directory, if it
    /// exists].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Maximum size of datasets, checkpoints, outputs, logs and models together: 100GiB [default: without limit].
    #[arg(long, value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) storage_quota: Option<u64>,
    /// The device that computes predictions: auto, cpu, gpu, vulkan:0.
    #[arg(long, env = "SAGGAR_DEVICE", default_value = "auto", value_name = "DEVICE")]
    pub(crate) device: String,
    /// End when standard input ends, so that the server does not outlive the process that started it.
    #[arg(long, hide = true)]
    pub(crate) end_with_input: bool,
    /// Kill workers that send no heartbeat for this time [default: 1m].
    #[arg(long, hide = true, value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) worker_silence: Option<Duration>,
    /// Maximum memory of all requests together, from their bodies to their answers: 512MiB. By default, a quarter of
    /// the free memory of the machine or control group at the start, less 192MiB, within 64MiB to 4GiB. One client gets
    /// at most half of it.
    #[arg(long, value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) request_memory_limit: Option<u64>,
    #[command(flatten)]
    pub(crate) without: WithoutArgs,
    /// Maximum device memory of all models together: 2GiB. If it is exhausted, the models with the oldest last request
    /// are put to sleep. By default, on the device cpu and on software adapters, half of the free memory of the machine
    /// or control group at the start, less 192MiB.
    #[arg(long, value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) model_memory_limit: Option<u64>,
    /// The maximum time to load a model version: 60s.
    #[arg(long, default_value = "60s", value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) load_timeout: Duration,
    /// The maximum time to import an ONNX file: 600s.
    #[arg(long, default_value = "600s", value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) import_timeout: Duration,
    /// The plugin that reads ONNX files [default: the one inside the program].
    #[arg(long, env = "SAGGAR_ONNX_PLUGIN", value_name = "FILE")]
    pub(crate) onnx_plugin: Option<PathBuf>,
    /// An address prefix that events of predictions can be sent to: https://example.com/hooks. Can be given several
    /// times; without it, no events are sent.
    #[arg(long = "allow-webhook", value_name = "ADDRESS")]
    pub(crate) allow_webhook: Vec<UrlPrefix>,
    #[command(flatten)]
    pub(crate) fetch: FetchArgs,
    /// Require keys on this machine too; on other addresses they are always required.
    #[arg(long)]
    pub(crate) require_keys: bool,
    /// Require no keys, on any address.
    #[arg(long, conflicts_with = "require_keys")]
    pub(crate) insecure: bool,
    /// A host name besides localhost that requests without a key can use, such as one that a proxy passes on. Can be
    /// given several times.
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// The version of a model that serves if no version was promoted: the newest as soon as it is published, or only a
    /// promoted one, so that the previous version keeps serving.
    #[arg(long, value_enum, default_value_t = FollowMode::Newest, value_name = "WHICH")]
    pub(crate) follow: FollowMode,
    /// Accept models from outside only as bundles that this key has signed: the key itself, RW..., or its file. Can be
    /// given several times. Pushes and ONNX files are refused then.
    #[arg(long, env = "SAGGAR_TRUSTED_KEY", value_delimiter = ',', value_name = "KEY|FILE")]
    pub(crate) trusted_key: Vec<String>,
    /// Serve MLflow's pages at /mlflow, from the directory mlflow/server/js/build of an installed MLflow. They have no
    /// place for a key.
    #[arg(long, env = "SAGGAR_MLFLOW_UI", value_name = "DIR")]
    pub(crate) mlflow_ui: Option<PathBuf>,
    /// Answer a request for a version that is stored but not loaded with 404, instead of loading it.
    #[arg(long)]
    pub(crate) no_load_on_demand: bool,
    /// The format of the server's log on standard error.
    #[arg(long, env = "SAGGAR_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    /// Write a line for each request to this file, or to standard output (-). SIGHUP opens the file again, for
    /// logrotate. [default: no access log]
    #[arg(long, env = "SAGGAR_ACCESS_LOG", value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,
    /// The format of the access log: a JSON object on each line, or the Common Log Format with more fields.
    #[arg(long, value_enum, default_value_t = AccessLogStyle::Json, requires = "access_log", value_name = "FORMAT")]
    pub(crate) access_log_format: AccessLogStyle,
}

/// What the server can fetch from other servers.
#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// An address prefix from which plugins and datasets can be fetched by URL and SHA-256: https://example.com/files.
    /// Can be given several times; without it, nothing is fetched.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) fetch_from: Vec<UrlPrefix>,
    /// Let the names in --fetch-from resolve to private addresses, such as those of an internal network.
    #[arg(long, requires = "fetch_from")]
    pub(crate) fetch_private: bool,
}

impl FetchArgs {
    pub(crate) fn policy(&self) -> FetchPolicy {
        FetchPolicy { allowed: self.fetch_from.clone(), allow_private: self.fetch_private }
    }
}

/// The format of the server's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text.
    Text,
    /// A JSON object on each line.
    Json,
}

/// The format of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessLogStyle {
    /// A JSON object on each line.
    Json,
    /// The Common Log Format, with the fields of the combined format and more.
    Common,
}

/// The version of a model that serves if no version was promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FollowMode {
    /// The newest version.
    Newest,
    /// Only the version that `saggar models promote` sets.
    Promoted,
}
