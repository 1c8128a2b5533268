//! Why an attempt may end without its training being at an end.

use serde::{Deserialize, Serialize};

/// What ended an attempt that another one may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetryCause {
    /// Another job took its place, or a user asked for it.
    Preempted,
    /// The device was lost.
    DeviceLost,
    /// The worker process ended without a word.
    WorkerLost,
    /// The server ended, or was killed. Does not count against the job.
    HostRestart,
    /// A loss or a variable was infinite or not a number.
    NonFinite,
    /// The plugin failed, by an error or a trap.
    Error,
}

impl RetryCause {
    /// Every cause.
    pub const ALL: [RetryCause; 6] = [
        RetryCause::Preempted,
        RetryCause::DeviceLost,
        RetryCause::WorkerLost,
        RetryCause::HostRestart,
        RetryCause::NonFinite,
        RetryCause::Error,
    ];

    /// The causes that are not the plugin's doing.
    pub const INFRASTRUCTURE: [RetryCause; 4] =
        [RetryCause::Preempted, RetryCause::DeviceLost, RetryCause::WorkerLost, RetryCause::HostRestart];

    /// The name users see: `device-lost`.
    pub const fn name(self) -> &'static str {
        match self {
            RetryCause::Preempted => "preempted",
            RetryCause::DeviceLost => "device-lost",
            RetryCause::WorkerLost => "worker-lost",
            RetryCause::HostRestart => "host-restart",
            RetryCause::NonFinite => "non-finite",
            RetryCause::Error => "error",
        }
    }

    /// The cause that a recorded reason stands for; none for attempts that were ended for other reasons.
    pub fn from_code(code: &str) -> Option<RetryCause> {
        match code {
            PREEMPTED => Some(RetryCause::Preempted),
            DEVICE_LOST => Some(RetryCause::DeviceLost),
            WORKER_LOST => Some(RetryCause::WorkerLost),
            HOST_SHUTDOWN | HOST_RESTART => Some(RetryCause::HostRestart),
            NON_FINITE => Some(RetryCause::NonFinite),
            RECYCLED | OVER_BUDGET | "" => None,
            _ => Some(RetryCause::Error),
        }
    }

    /// Whether an attempt that ended for this cause counts against the job's retries.
    pub const fn counts_against_retries(self) -> bool {
        match self {
            RetryCause::HostRestart => false,
            RetryCause::Preempted
            | RetryCause::DeviceLost
            | RetryCause::WorkerLost
            | RetryCause::NonFinite
            | RetryCause::Error => true,
        }
    }
}

/// The attempt made room for another job, or a user asked for that.
pub const PREEMPTED: &str = "PREEMPTED";
/// The reason of an attempt that ends because the driver gave up its device.
pub const DEVICE_LOST: &str = "DEVICE_LOST";
/// The worker ended without a word.
pub const WORKER_LOST: &str = "WORKER_LOST";
/// The server shut down in order.
pub const HOST_SHUTDOWN: &str = "HOST_SHUTDOWN";
/// The server was killed, and another took over.
pub const HOST_RESTART: &str = "HOST_RESTART";
/// A number was none any more.
pub const NON_FINITE: &str = "NON_FINITE";
/// The attempt left its device idle for too long.
pub const IDLE: &str = "IDLE";
/// The attempt reached its own longest time, and the job goes on in another.
pub const RECYCLED: &str = "MAX_ATTEMPT_RUNTIME";
/// The job's project or key has used up its device seconds.
pub const OVER_BUDGET: &str = "QUOTA_GPU_SECONDS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_serializes_as_its_name() {
        for cause in RetryCause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
        }
        assert_eq!(RetryCause::from_code("TRAP"), Some(RetryCause::Error));
        assert_eq!(RetryCause::from_code(RECYCLED), None);
        assert!(!RetryCause::HostRestart.counts_against_retries());
    }
}
