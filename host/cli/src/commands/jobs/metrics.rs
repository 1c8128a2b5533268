//! `saggar metrics`: a job's series, as a summary or point by point.

use std::collections::BTreeMap;

use saggar_rest::job_metrics::{MetricSeriesDocument, MetricSeriesPoint};

use super::job_series::{JobMetrics, SeriesPoint};
use super::tensorboard;
use crate::args::MetricsArgs;
use crate::client::ApiClient;
use crate::exit::CliError;
use crate::output::CliOutput;

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

pub(crate) fn metrics(args: &MetricsArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    if let Some(directory) = &args.tensorboard {
        return tensorboard::export(args, directory, client, output);
    }
    let measured = JobMetrics::fetch(args, 0, client)?;
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
