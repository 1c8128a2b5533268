//! `saggar metrics`: the series of jobs, as charts, as a summary or point by point.

mod charts;

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;

use saggar_rest::job_metrics::{MetricSeriesDocument, MetricSeriesPoint};
use serde::Serialize;

use super::job_series::{JobMetrics, SeriesPoint};
use super::tensorboard;
use crate::args::MetricsArgs;
use crate::client::ApiClient;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::project;

impl JobMetrics {
    /// Returns the series as the server answers them.
    fn series_documents(&self) -> Vec<MetricSeriesDocument> {
        let finite = |value: f64| value.is_finite().then_some(value);
        let point = |point: &SeriesPoint| MetricSeriesPoint::Timed(point.step, finite(point.value), point.at_ms);
        let one = |(name, points): (&String, &Vec<SeriesPoint>)| MetricSeriesDocument {
            name: name.clone(),
            points: points.iter().map(point).collect(),
        };
        self.series.iter().map(one).collect()
    }
}

/// A job with its series.
struct MeasuredJob {
    name: String,
    measured: JobMetrics,
}

/// The series of a job, as JSON.
#[derive(Serialize)]
struct JobSeriesDocument {
    job: String,
    series: Vec<MetricSeriesDocument>,
}

/// Prints one line per step and job, with the time since the job began. A series without a value at a step has an empty
/// field. The column of the job is left out if there is one job.
fn print_csv(jobs: &[MeasuredJob], output: CliOutput) {
    let names: BTreeSet<&String> = jobs.iter().flat_map(|job| job.measured.series.keys()).collect();
    let headers: Vec<String> = names.iter().map(|name| csv_field(name)).collect();
    let is_alone = jobs.len() == 1;
    let first = if is_alone { "" } else { "job," };
    output.print_line(&format!("{first}step,elapsed_time,{}", headers.join(",")));
    for MeasuredJob { name: job, measured } in jobs {
        let mut lines: BTreeMap<u64, (u64, Vec<String>)> = BTreeMap::new();
        for (column, name) in names.iter().enumerate() {
            for SeriesPoint { step, value, at_ms } in measured.series.get(*name).into_iter().flatten() {
                let line = lines.entry(*step).or_insert_with(|| (*at_ms, vec![String::new(); names.len()]));
                line.0 = line.0.max(*at_ms);
                line.1[column] = value.to_string();
            }
        }
        let first = if is_alone { String::new() } else { format!("{},", csv_field(job)) };
        for (step, (at_ms, values)) in &lines {
            let seconds = at_ms.saturating_sub(measured.started_ms) as f64 / 1000.0;
            output.print_line(&format!("{first}{step},{seconds:.3},{}", values.join(",")));
        }
    }
}

/// Quotes a name as a CSV field (RFC 4180, section 2).
fn csv_field(name: &str) -> String {
    match name.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.to_owned(),
    }
}

pub(crate) fn metrics(args: &MetricsArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    if let Some(directory) = &args.tensorboard {
        return tensorboard::export(args, directory, client, output);
    }
    args.files.check_absent(&args.look)?;
    let fetch = |job: &String| -> Result<MeasuredJob, CliError> {
        let measured = JobMetrics::fetch(job, &args.series, 0, client)?;
        Ok(MeasuredJob { name: project::resolve_job_name(job), measured })
    };
    let jobs: Vec<MeasuredJob> = args.jobs.iter().map(fetch).collect::<Result<_, CliError>>()?;
    if args.files.is_requested() {
        return charts::write(args, &jobs, client, output);
    }
    if output.json {
        print_json(&jobs, output);
        return Ok(());
    }
    if args.csv {
        print_csv(&jobs, output);
        return Ok(());
    }
    if args.chart || (std::io::stdout().is_terminal() && !output.quiet) {
        charts::print(args, &jobs, client, output)?;
    }
    print_summary(&jobs, output);
    Ok(())
}

/// Prints the series of one job, or each job with its series.
fn print_json(jobs: &[MeasuredJob], output: CliOutput) {
    match jobs {
        [job] => output.print_json(&job.measured.series_documents()),
        jobs => {
            let document = |job: &MeasuredJob| JobSeriesDocument {
                job: job.name.clone(),
                series: job.measured.series_documents(),
            };
            output.print_json(&jobs.iter().map(document).collect::<Vec<_>>());
        }
    }
}

/// Prints a table with a row for each series.
fn print_summary(jobs: &[MeasuredJob], output: CliOutput) {
    let is_alone = jobs.len() == 1;
    let row = |job: &str, name: &str, points: &[SeriesPoint]| {
        let known = || points.iter().map(|point| point.value).filter(|value| value.is_finite());
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.6}"));
        let mut row = vec![
            name.to_owned(),
            points.len().to_string(),
            points.last().map_or("-".to_owned(), |point| point.step.to_string()),
            number(points.last().map(|point| point.value)),
            number(known().reduce(f64::min)),
            number(known().reduce(f64::max)),
        ];
        if !is_alone {
            row.insert(0, job.to_owned());
        }
        row
    };
    let of_job = |job: &MeasuredJob| -> Vec<Vec<String>> {
        job.measured.series.iter().map(|(name, points)| row(&job.name, name, points)).collect()
    };
    let rows: Vec<Vec<String>> = jobs.iter().flat_map(of_job).collect();
    let headers = ["JOB", "SERIES", "POINTS", "LAST STEP", "LAST", "MIN", "MAX"];
    output.print_table(&headers[usize::from(is_alone)..], &rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_name_is_quoted_as_one_csv_field() {
        for (name, field) in
            [("loss", "loss"), ("a,b", "\"a,b\""), ("\"a\" b", "\"\"\"a\"\" b\""), ("a\nb", "\"a\nb\"")]
        {
            assert_eq!(csv_field(name), field);
        }
    }
}
