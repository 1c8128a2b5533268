//! What one refresh found on each server: the lines of `saggar top --json`, of recordings, and what the views show.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The state of all servers at one refresh.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RefreshDocument {
    /// When the refresh ended, in Unix milliseconds.
    pub at_ms: u64,
    /// The servers, in the order of the command line.
    pub hosts: Vec<HostDocument>,
}

/// The state of one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostDocument {
    /// Its URL.
    pub host: String,
    /// Whether it answered. If not, the lists are empty.
    pub answered: bool,
    /// Why it did not answer.
    pub error: Option<String>,
    /// What could not be read, for example because the key does not allow it.
    pub notes: Vec<String>,
    /// Its jobs: those that are not over, and the newest others.
    pub jobs: Vec<JobFigures>,
    /// Its models.
    pub models: Vec<ModelFigures>,
    /// Its devices.
    pub devices: Vec<DeviceFigures>,
}

/// A job. The names are those of the REST interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobFigures {
    /// Its name, such as `digits-7`.
    pub name: String,
    /// Its state.
    pub state: String,
    /// The number of its attempts.
    pub attempt: u32,
    /// The step that it has completed.
    pub step: u64,
    /// The number of steps that it is to complete; 0 if it is not known.
    pub steps_target: u64,
    /// The steps of the newest attempt divided by its time.
    pub steps_per_second: Option<f64>,
    /// The last value of each metric; null for infinities and NaN.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// The device of the newest attempt.
    pub device: Option<String>,
    /// The seconds that its attempts ran.
    pub wall_seconds: f64,
}

impl JobFigures {
    /// Returns whether the job has an attempt.
    pub fn is_active(&self) -> bool {
        matches!(self.state.as_str(), "STARTING" | "RUNNING" | "STOPPING")
    }
}

/// A model, over all of its versions. Rates and quantiles are those of the time since the refresh before. A server of an
/// older version has none at the first refresh.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelFigures {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: String,
    /// The version that default requests get.
    pub serving: Option<u64>,
    /// Predictions that ended, in each second.
    pub requests_per_second: Option<f64>,
    /// Predictions that did not succeed, in each second.
    pub errors_per_second: Option<f64>,
    /// The median time of a prediction, estimated from a histogram; null without predictions.
    pub p50_seconds: Option<f64>,
    /// The 99th percentile of the time of a prediction.
    pub p99_seconds: Option<f64>,
    /// Predictions that wait for their batch.
    pub queue_length: Option<f64>,
    /// The mean number of items of a batch; null without batches.
    pub batch_items: Option<f64>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceFigures {
    /// Its name, such as `vulkan0`.
    pub name: String,
    /// The name of the hardware.
    pub adapter: String,
    /// The share of the last seconds in which it worked, in percent; null if it is not known.
    pub busy_percent: Option<f64>,
    /// The bytes in use, by owner.
    pub memory_bytes: BTreeMap<String, u64>,
}

impl DeviceFigures {
    /// Returns the bytes of all owners.
    pub fn memory_total(&self) -> u64 {
        self.memory_bytes.values().sum()
    }
}
