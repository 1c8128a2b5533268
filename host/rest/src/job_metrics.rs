//! `GET /api/v1/jobs/{job}/metrics`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The metric series of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Metrics")]
pub struct JobMetricsDocument {
    /// When the job started, in Unix milliseconds.
    pub started_ms: Option<u64>,
    /// The series.
    pub series: Vec<MetricSeriesDocument>,
    /// The step from which to request the points that did not fit into this response.
    pub next: Option<u64>,
}

/// A metric series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MetricSeries")]
pub struct MetricSeriesDocument {
    /// Its name, such as `loss`.
    pub name: String,
    /// Its points, by rising step.
    pub points: Vec<MetricSeriesPoint>,
}

/// A point: its step, its value and, if requested with `times`, its time in Unix milliseconds. Infinities and NaN, which
/// JSON cannot represent, are null.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "MetricPoint")]
pub enum MetricSeriesPoint {
    /// Step, value and time.
    Timed(u64, Option<f64>, u64),
    /// Step and value.
    Plain(u64, Option<f64>),
}
