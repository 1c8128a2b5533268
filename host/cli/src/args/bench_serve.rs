//! Arguments of `saggar bench serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use saggar_project::units;

/// How predictions are sent to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchProtocol {
    /// JSON to `/models/MODEL/predict`.
    #[default]
    Json,
    /// The Open Inference Protocol over HTTP, with binary tensors.
    Binary,
    /// The Open Inference Protocol over gRPC, with raw contents.
    Grpc,
}

impl BenchProtocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            BenchProtocol::Json => "json",
            BenchProtocol::Binary => "binary",
            BenchProtocol::Grpc => "grpc",
        }
    }
}

/// How the requests of an open loop are distributed over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArrivalsArg {
    /// At random distances, as of many independent clients.
    #[default]
    Poisson,
    /// At equal distances.
    Constant,
}

impl ArrivalsArg {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ArrivalsArg::Poisson => "poisson",
            ArrivalsArg::Constant => "constant",
        }
    }
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct BenchServeArgs {
    /// The model: digits, digits@3 or digits@stable. Inputs are random, of its declared shapes and data types, unless
    /// --requests names others.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// A file with a request on each line: {"model": "digits", "inputs": {"image": [[0, 9], [9, 0]]}, "weight": 2}, or
    /// with "body", the JSON of `/predict`, in place of "inputs".
    #[arg(long, value_name = "FILE")]
    pub(crate) requests: Option<PathBuf>,
    /// How requests are sent.
    #[arg(long, value_enum, default_value = "json", value_name = "PROTOCOL")]
    pub(crate) protocol: BenchProtocol,
    /// The number of connections; each number is measured in turn.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64", value_parser = parse_connections, value_name = "N,...")]
    pub(crate) connections: Vec<usize>,
    /// Send this number of requests per second on a schedule, over at most --connections, instead of waiting for
    /// answers. Latency then counts from when a request was due.
    #[arg(long, value_parser = parse_rate, value_name = "N")]
    pub(crate) rate: Option<f64>,
    /// The distances between requests with --rate.
    #[arg(long, value_enum, default_value = "poisson", value_name = "ARRIVALS")]
    pub(crate) arrivals: ArrivalsArg,
    /// How long each number of connections is measured.
    #[arg(long, default_value = "10s", value_parser = parse_measured_time, value_name = "TIME")]
    pub(crate) duration: Duration,
    /// How long the load runs before it is measured.
    #[arg(long, default_value = "1s", value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) warm_up: Duration,
    /// The longest time for an answer; later ones count as failed.
    #[arg(long, default_value = "10s", value_parser = parse_measured_time, value_name = "TIME")]
    pub(crate) timeout: Duration,
    /// Items in each request of random inputs.
    #[arg(long, default_value_t = 1, value_parser = parse_items, value_name = "N")]
    pub(crate) batch: usize,
    /// Threads of the client [default: half of the cores].
    #[arg(long, value_parser = parse_items, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// The seed of random inputs, of the order of requests and of their distances.
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub(crate) seed: u64,
    /// Write the result to this file, for `saggar bench diff`.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
}

/// Maximum number of connections of a load.
const CONNECTIONS_MAX: usize = 4096;

fn parse_count(text: &str, max: usize) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=max).contains(count));
    count.ok_or_else(|| format!("expected a number from 1 to {max}"))
}

fn parse_connections(text: &str) -> Result<usize, String> {
    parse_count(text, CONNECTIONS_MAX)
}

fn parse_items(text: &str) -> Result<usize, String> {
    parse_count(text, 1024)
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| *rate > 0.0 && *rate <= 1e6);
    rate.ok_or_else(|| "expected requests per second above 0, at most 1000000".to_owned())
}

/// Parses a time above zero.
fn parse_measured_time(text: &str) -> Result<Duration, String> {
    let time = units::parse_duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("expected a time above 0, such as 10s".to_owned()) } else { Ok(time) }
}
