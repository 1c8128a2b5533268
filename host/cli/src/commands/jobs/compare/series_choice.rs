//! The chart of one series of compared things: which series it shows, and its picture.

use std::collections::BTreeSet;

use saggar_charts::{ChartPanel, SeriesLine};

use crate::args::CompareArgs;
use crate::commands::series_charts::line_chart;
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// Returns the series that is drawn: the one that was named, else `loss`, else the first one by name.
///
/// # Errors
/// `no_series` if none of the compared things has it, with what they are called and the command that lists them.
pub(super) fn choose_series(
    named: Option<&str>,
    known: BTreeSet<String>,
    (noun, list): (&str, &str),
) -> Result<String, CliError> {
    let chosen = match named {
        Some(name) => known.get(name),
        None => known.get("loss").or_else(|| known.first()),
    };
    chosen.cloned().ok_or_else(|| {
        let message = match named {
            Some(name) => format!("--metric {name}: no compared {noun} has this series"),
            None => format!("no compared {noun} has a series yet"),
        };
        let hint = match known.is_empty() {
            true => format!("`{list}` shows what they do"),
            false => format!("there are: {}", known.into_iter().collect::<Vec<_>>().join(", ")),
        };
        CliError::new(exit::NOT_FOUND, "no_series", message).with_hint(hint)
    })
}

/// Draws the lines of a series into the files that the arguments name. `title` names the series.
///
/// # Errors
/// A file cannot be written.
pub(super) fn write_series(
    args: &CompareArgs,
    title: &str,
    (series, lines): (&str, Vec<SeriesLine>),
    output: CliOutput,
) -> Result<(), CliError> {
    let mut chart = line_chart(series, lines, &[], args.look.curves);
    // The chart's own title would name the series again; only what follows the name is kept.
    let smoothed = chart.title.split_off(series.len());
    chart.title.clear();
    args.files.write(&args.look, (format!("{title}{smoothed}"), vec![ChartPanel::Lines(chart)]), output)
}
