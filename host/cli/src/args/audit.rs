//! Arguments of `saggar audit`.

use std::time::Duration;

use clap::Args;
use saggar_project::units;

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// Only lines of this originator: key:NAME, loopback, socket, anyone, cli, no_key.
    #[arg(long, value_name = "WHO")]
    pub(crate) who: Option<String>,
    /// Only lines of this action, such as model.promote, or of a kind of action: model.
    #[arg(long, value_name = "ACTION")]
    pub(crate) action: Option<String>,
    /// Only lines about this model, job, key or other thing.
    #[arg(long, value_name = "NAME")]
    pub(crate) subject: Option<String>,
    /// Only lines with this result: ok, refused, or the code of an error.
    #[arg(long, value_name = "RESULT")]
    pub(crate) result: Option<String>,
    /// Only lines of this server of a database.
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
    /// Only lines of the last time: 90s, 10m, 12h, 7d.
    #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) since: Option<Duration>,
    /// The number of lines.
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "N")]
    pub(crate) lines: u32,
}
