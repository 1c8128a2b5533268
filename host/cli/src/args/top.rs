//! Arguments of `saggar top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use saggar_project::units;
use saggar_top::series_name::SeriesSelector;

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// A recording to show instead of servers: a file of `--record`, or the output of `--json`.
    #[arg(value_name = "FILE", conflicts_with_all = ["record", "prometheus", "interval", "count"])]
    pub(crate) file: Option<PathBuf>,
    /// The same as FILE.
    #[arg(long, conflicts_with_all = ["file", "record", "prometheus", "interval", "count"], value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
    /// The charted series, separated by commas: metrics of jobs, such as loss; steps-per-second; requests, errors, p50, p99,
    /// queue and batch of models; busy and memory of devices. `digits-7:loss` is that of one job, model or device [default:
    /// busy,requests,loss].
    #[arg(long, value_delimiter = ',', value_name = "SERIES")]
    pub(crate) series: Vec<SeriesSelector>,
    /// The visible time [default: 10m].
    #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) window: Option<Duration>,
    /// The time between refreshes, at least 200ms [default: 2s].
    #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) interval: Option<Duration>,
    /// The lowest value of the charts [default: by the values, without outliers].
    #[arg(long, allow_negative_numbers = true, value_parser = parse_bound, value_name = "VALUE")]
    pub(crate) ymin: Option<f64>,
    /// The highest value of the charts [default: by the values, without outliers].
    #[arg(long, allow_negative_numbers = true, value_parser = parse_bound, value_name = "VALUE")]
    pub(crate) ymax: Option<f64>,
    /// The view to begin with [default: charts with --series, else jobs].
    #[arg(long, value_name = "VIEW")]
    pub(crate) view: Option<TopViewArg>,
    /// The URL of a Prometheus server that scrapes the servers, for the time before this command started.
    #[arg(long, value_name = "URL")]
    pub(crate) prometheus: Option<String>,
    /// Append each refresh to this file, as a line of JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// End after this many refreshes.
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub(crate) count: Option<u64>,
}

/// A view of `saggar top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopViewArg {
    Jobs,
    Models,
    Devices,
    Charts,
}

fn parse_bound(text: &str) -> Result<f64, String> {
    let bound = text.parse::<f64>().ok().filter(|bound| bound.is_finite());
    bound.ok_or_else(|| format!("invalid value `{text}`: expected a number, such as 0 or 1.5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_finite_numbers() {
        assert_eq!((parse_bound("-1.5"), parse_bound("1e3")), (Ok(-1.5), Ok(1000.0)));
        for wrong in ["inf", "nan", "much", ""] {
            assert!(parse_bound(wrong).unwrap_err().contains("such as 0"), "{wrong}");
        }
    }
}
