//! `saggar metrics`: a job's series, as a summary or point by point.

use std::collections::BTreeMap;

use saggar_rest::job_metrics::{JobMetricsDocument, MetricSeriesDocument, MetricSeriesPoint};

use crate::args::MetricsArgs;
use crate::client::{ApiClient, encode_path_segment};
use crate::commands::job_follow::job_path;
use crate::exit::CliError;
use crate::output::CliOutput;

/// A point of a series.
#[derive(Clone, Copy)]
struct SeriesPoint {
    step: u64,
    /// The value; NaN if it cannot be represented in JSON.
    value: f64,
    /// The time, in ms since 1970.
    at_ms: u64,
}

/// The metrics of a job.
struct JobMetrics {
    /// The start of the first attempt, in ms since 1970.
    started_ms: u64,
    /// The series by name, their points in step order.
    series: BTreeMap<String, Vec<SeriesPoint>>,
}

impl JobMetrics {
    /// Fetches every point, page by page.
    fn fetch(args: &MetricsArgs, client: &ApiClient) -> Result<JobMetrics, CliError> {
        let wanted: Vec<String> = args.series.iter().map(|name| encode_path_segment(name)).collect();
        let only = if wanted.is_empty() { String::new() } else { format!("&series={}", wanted.join(",")) };
        let mut measured = JobMetrics { started_ms: 0, series: BTreeMap::new() };
        let mut from = Some(0);
        while let Some(step) = from {
            let page: JobMetricsDocument =
                client.get(&format!("{}/metrics?times=1&from={step}{only}", job_path(&args.job)))?;
            measured.started_ms = page.started_ms.unwrap_or(0);
            for one in page.series {
                let known = measured.series.entry(one.name).or_default();
                // If a series was shorter than others, the next page repeats points of it, which are skipped.
                let last = known.last().map(|point| point.step);
                known.extend(
                    one.points.iter().map(read_point).filter(|point| last.is_none_or(|last| point.step > last)),
                );
            }
            from = page.next;
        }
        Ok(measured)
    }

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

    /// Prints one line per step, with the time since the job began. A series without a value at a step has an empty
    /// field.
    fn print_csv(&self, output: CliOutput) {
        let mut lines: BTreeMap<u64, (u64, Vec<String>)> = BTreeMap::new();
        for (column, points) in self.series.values().enumerate() {
            for SeriesPoint { step, value, at_ms } in points {
                let line = lines.entry(*step).or_insert_with(|| (*at_ms, vec![String::new(); self.series.len()]));
                line.0 = line.0.max(*at_ms);
                line.1[column] = value.to_string();
            }
        }
        let names: Vec<String> = self.series.keys().map(|name| csv_field(name)).collect();
        output.print_line(&format!("step,elapsed_time,{}", names.join(",")));
        for (step, (at_ms, values)) in &lines {
            let seconds = at_ms.saturating_sub(self.started_ms) as f64 / 1000.0;
            output.print_line(&format!("{step},{seconds:.3},{}", values.join(",")));
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

fn read_point(point: &MetricSeriesPoint) -> SeriesPoint {
    let (step, value, at_ms) = match *point {
        MetricSeriesPoint::Timed(step, value, at_ms) => (step, value, at_ms),
        MetricSeriesPoint::Plain(step, value) => (step, value, 0),
    };
    SeriesPoint { step, value: value.unwrap_or(f64::NAN), at_ms }
}

pub(crate) fn metrics(args: &MetricsArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let measured = JobMetrics::fetch(args, client)?;
    if output.json {
        output.print_json(&measured.series_documents());
        return Ok(());
    }
    if args.csv {
        measured.print_csv(output);
        return Ok(());
    }
    let row = |(name, points): (&String, &Vec<SeriesPoint>)| {
        let known = || points.iter().map(|point| point.value).filter(|value| value.is_finite());
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.6}"));
        vec![
            name.clone(),
            points.len().to_string(),
            points.last().map_or("-".to_owned(), |point| point.step.to_string()),
            number(points.last().map(|point| point.value)),
            number(known().reduce(f64::min)),
            number(known().reduce(f64::max)),
        ]
    };
    let rows: Vec<Vec<String>> = measured.series.iter().map(row).collect();
    output.print_table(&["SERIES", "POINTS", "LAST STEP", "LAST", "MIN", "MAX"], &rows);
    Ok(())
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
