//! Policies for useless trainings: those with numbers that are infinite or not a number, and those that hold a device
//! but leave it idle.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What to do with a training whose loss or variables are infinite or not a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NonFinite {
    /// The attempt fails before such numbers are saved or published. If the job retries the cause `non-finite`, the
    /// next attempt continues from the newest checkpoint, which was saved before.
    #[default]
    Stop,
    /// A step whose update is not finite is skipped: variables keep their values, and the training continues.
    Skip,
    /// The training continues, and saves and publishes the numbers.
    Continue,
}

impl NonFinite {
    /// Returns whether this is the default.
    pub(super) fn is_default(&self) -> bool {
        *self == NonFinite::Stop
    }
}

/// The minimum utilization of a job's device in a time window. A job below it is saved and stopped.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UtilizationPolicy {
    /// The minimum ratio of device seconds to seconds, above 0 and at most 1.
    pub min_gpu: f64,
    /// The length of the window in seconds.
    pub window_seconds: f64,
}
