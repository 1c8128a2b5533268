//! `GET /api/v1/history`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Samples of devices, models and jobs since the server began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "History")]
pub struct HistoryDocument {
    /// The time of the newest sample, in milliseconds since 1970, or the request's `since` if no sample is newer. It is
    /// the `since` of a request for what comes next.
    pub newest_ms: u64,
    /// The time between two samples in seconds: 1 or 60.
    pub step_seconds: u64,
    /// The end of each sample's interval, in milliseconds since 1970, ascending.
    pub times_ms: Vec<u64>,
    /// The series that have a value at any of these times.
    pub series: Vec<HistorySeriesDocument>,
    /// Series that were not recorded, because the history was full.
    pub series_left_out: usize,
}

/// A series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "HistorySeries")]
pub struct HistorySeriesDocument {
    /// The quantity, whose last part is the unit, such as `model_latency_p99_seconds`.
    pub name: String,
    /// The model, if it is about one.
    pub model: Option<String>,
    /// The device, if it is about one.
    pub device: Option<String>,
    /// Who holds the memory of the device: `models`, or the name of a job. Jobs that the client cannot see are one owner,
    /// `other jobs`.
    pub owner: Option<String>,
    /// A value for each time; null where a sample has no value, such as the latency of a second without requests.
    pub values: Vec<Option<f32>>,
}
