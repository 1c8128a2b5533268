//! What the host does about a training that computes nothing of use: one whose numbers are none any more, and one that
//! holds a device and leaves it idle.

use serde::{Deserialize, Serialize};

/// What becomes of a training whose loss or variables are infinite or not a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NonFinite {
    /// The attempt fails before such numbers are saved or published. Where the job is tried again for the cause
    /// `non-finite`, it is rolled back: the next attempt goes on from the newest checkpoint, which is from before.
    #[default]
    Stop,
    /// A step whose update is not of finite numbers is left out: variables keep their values, and it goes on.
    Skip,
    /// It goes on, and saves and publishes what it has.
    Continue,
}

impl NonFinite {
    /// Whether nobody said otherwise.
    pub(super) fn is_default(&self) -> bool {
        *self == NonFinite::Stop
    }
}

/// The share of a window of time that a job must keep its device busy; one that does not is saved and stopped.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UtilizationPolicy {
    /// Device seconds to seconds, above 0 and at most 1.
    pub min_gpu: f64,
    /// Seconds.
    pub window_seconds: f64,
}
