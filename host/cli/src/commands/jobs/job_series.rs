//! The series of a job, as the server has them.

use std::collections::BTreeMap;

use saggar_rest::job_metrics::{JobMetricsDocument, MetricSeriesPoint};

use crate::client::{ApiClient, encode_path_segment};
use crate::commands::job_follow::job_path;
use crate::exit::CliError;

/// A point of a series.
#[derive(Clone, Copy)]
pub(crate) struct SeriesPoint {
    pub(crate) step: u64,
    /// The value; NaN if it cannot be represented in JSON.
    pub(crate) value: f64,
    /// The time, in ms since 1970.
    pub(crate) at_ms: u64,
}

/// The metrics of a job.
pub(crate) struct JobMetrics {
    /// The start of the first attempt, in ms since 1970.
    pub(crate) started_ms: u64,
    /// The series by name, their points in step order.
    pub(crate) series: BTreeMap<String, Vec<SeriesPoint>>,
}

impl JobMetrics {
    /// Fetches every point of some series, or of all if none is named, from a step on, page by page.
    pub(crate) fn fetch(job: &str, series: &[String], from: u64, client: &ApiClient) -> Result<JobMetrics, CliError> {
        let wanted: Vec<String> = series.iter().map(|name| encode_path_segment(name)).collect();
        let only = if wanted.is_empty() { String::new() } else { format!("&series={}", wanted.join(",")) };
        let mut measured = JobMetrics { started_ms: 0, series: BTreeMap::new() };
        let mut from = Some(from);
        while let Some(step) = from {
            let page: JobMetricsDocument =
                client.get(&format!("{}/metrics?times=1&from={step}{only}", job_path(job)))?;
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
}

impl JobMetrics {
    /// Removes a series and returns its values by step; none if the job does not have it.
    pub(crate) fn take_points(&mut self, name: &str) -> Vec<(u64, f64)> {
        values_by_step(&self.series.remove(name).unwrap_or_default())
    }
}

/// Returns the values of points by step.
pub(crate) fn values_by_step(points: &[SeriesPoint]) -> Vec<(u64, f64)> {
    points.iter().map(|point| (point.step, point.value)).collect()
}

fn read_point(point: &MetricSeriesPoint) -> SeriesPoint {
    let (step, value, at_ms) = match *point {
        MetricSeriesPoint::Timed(step, value, at_ms) => (step, value, at_ms),
        MetricSeriesPoint::Plain(step, value) => (step, value, 0),
    };
    SeriesPoint { step, value: value.unwrap_or(f64::NAN), at_ms }
}
