//! The series of jobs as charts, in a file and in the terminal.

use saggar_charts::{AttemptBoundary, ChartPanel, LineChart, PANELS_MAX, TerminalSize, terminal_chart};
use saggar_rest::jobs::JobDocument;

use super::MeasuredJob;
use crate::args::MetricsArgs;
use crate::client::ApiClient;
use crate::commands::job_follow::job_path;
use crate::commands::jobs::job_series::values_by_step;
use crate::commands::series_charts::{NamedSeries, boundaries_of, group_charts};
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// Charts that the terminal shows if no series are named.
const TERMINAL_CHARTS: usize = 2;
/// Rows of a chart in the terminal.
const TERMINAL_ROWS: usize = 10;
/// The width of charts, in characters, if standard output is not a terminal.
const COLUMNS_DEFAULT: usize = 80;

/// Draws the charts into the files that the arguments name.
pub(super) fn write(
    args: &MetricsArgs,
    jobs: &[MeasuredJob],
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    check_series(args, jobs)?;
    let mut charts = charts_of(args, jobs, client)?;
    if charts.len() > PANELS_MAX {
        let undrawn: Vec<String> = charts.drain(PANELS_MAX..).map(|chart| chart.y_label).collect();
        output.print_note(&format!("not drawn: {}; choose series with --series", undrawn.join(", ")));
    }
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    let panels = charts.into_iter().map(ChartPanel::Lines).collect();
    args.files.write(&args.look, (names.join(", "), panels), output)
}

/// Prints the charts of the named series, or the first ones. A job without series has none.
pub(super) fn print(
    args: &MetricsArgs,
    jobs: &[MeasuredJob],
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    let charts = charts_of(args, jobs, client)?;
    let count = if args.series.is_empty() { TERMINAL_CHARTS } else { charts.len() };
    let size = TerminalSize { columns: terminal_columns(), rows: TERMINAL_ROWS };
    for chart in charts.iter().take(count) {
        output.print_chart(&terminal_chart(chart, size, output.colour));
        output.print_line("");
    }
    if charts.len() > count {
        let others: Vec<&str> = charts[count..].iter().map(|chart| chart.title.as_str()).collect();
        output.print_note(&format!("More charts with --series: {}\n", others.join(", ")));
    }
    Ok(())
}

/// Returns the width of the terminal, in characters.
fn terminal_columns() -> usize {
    console::Term::stdout().size_checked().map_or(COLUMNS_DEFAULT, |(_, columns)| usize::from(columns))
}

/// Returns the charts. The attempts of a job are drawn if it is the only one.
fn charts_of(args: &MetricsArgs, jobs: &[MeasuredJob], client: &ApiClient) -> Result<Vec<LineChart>, CliError> {
    let boundaries: Vec<AttemptBoundary> = match args.jobs.as_slice() {
        [job] => boundaries_of(&client.get::<JobDocument>(&job_path(job))?),
        _ => Vec::new(),
    };
    let series = jobs.iter().flat_map(|job| {
        job.measured.series.iter().map(move |(name, points)| NamedSeries {
            name: name.clone(),
            label: if jobs.len() == 1 { name.clone() } else { format!("{} {name}", job.name) },
            points: values_by_step(points),
        })
    });
    Ok(group_charts(series.collect(), &boundaries, args.look.curves))
}

/// Checks that some series can be drawn, and that every named one exists in a job.
fn check_series(args: &MetricsArgs, jobs: &[MeasuredJob]) -> Result<(), CliError> {
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    let is_known = |name: &str| jobs.iter().any(|job| job.measured.series.get(name).is_some_and(|it| !it.is_empty()));
    let missing = args.series.iter().find(|name| !is_known(name));
    let message = match missing {
        Some(name) => format!("{} has no series {name:?}", names.join(", ")),
        None if jobs.iter().all(|job| job.measured.series.is_empty()) => {
            format!("{} has no series yet", names.join(", "))
        }
        None => return Ok(()),
    };
    let hint = format!("`saggar metrics {}` lists the series", names[0]);
    Err(CliError::new(exit::NOT_FOUND, "no_series", message).with_hint(hint))
}
