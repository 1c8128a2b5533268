//! The causes of an attempt's end that can be retried.

use saggar_plugin::FailureReason;
use saggar_store::records::PAUSED;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A cause of an attempt's end after which another attempt can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RetryCause {
    /// Another job or a user preempted it.
    Preempted,
    /// The device was lost.
    DeviceLost,
    /// The worker process ended without a final event.
    WorkerLost,
    /// The server ended, was killed, or could not be reached by the others. Does not count against the job's retries.
    HostRestart,
    /// A loss or a variable was infinite or not a number.
    NonFinite,
    /// The plugin failed, by an error or a trap.
    Error,
}

impl RetryCause {
    /// All causes.
    pub const ALL: [RetryCause; 6] = [
        RetryCause::Preempted,
        RetryCause::DeviceLost,
        RetryCause::WorkerLost,
        RetryCause::HostRestart,
        RetryCause::NonFinite,
        RetryCause::Error,
    ];

    /// The causes that are not the plugin's fault.
    pub const INFRASTRUCTURE: [RetryCause; 4] =
        [RetryCause::Preempted, RetryCause::DeviceLost, RetryCause::WorkerLost, RetryCause::HostRestart];

    /// Returns the name that users see: `device-lost`.
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

    /// Returns the cause of a recorded reason code, or `None` if the attempt ended for another reason.
    pub fn from_code(code: &str) -> Option<RetryCause> {
        if let Some(failure) = FailureReason::from_name(code) {
            return Some(RetryCause::from(failure));
        }
        match code {
            PREEMPTED => Some(RetryCause::Preempted),
            HOST_SHUTDOWN | HOST_RESTART | HOST_LOST => Some(RetryCause::HostRestart),
            RECYCLED | OVER_BUDGET | PAUSED | "" => None,
            _ => Some(RetryCause::Error),
        }
    }

    /// Returns whether an attempt that ended for this cause counts against the job's retries.
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

impl From<FailureReason> for RetryCause {
    fn from(failure: FailureReason) -> RetryCause {
        match failure {
            FailureReason::DeviceLost => RetryCause::DeviceLost,
            FailureReason::WorkerLost => RetryCause::WorkerLost,
            FailureReason::NonFinite => RetryCause::NonFinite,
            _ => RetryCause::Error,
        }
    }
}

/// The reason code if another job or a user preempted the attempt.
pub const PREEMPTED: &str = "PREEMPTED";
/// The reason code if the worker ended without a final event.
pub const WORKER_LOST: &str = FailureReason::WorkerLost.as_str();
/// The reason code if the server shut down gracefully.
pub const HOST_SHUTDOWN: &str = "HOST_SHUTDOWN";
/// The reason code if the server was killed and another one took over.
pub const HOST_RESTART: &str = "HOST_RESTART";
/// The reason code if the server did not renew its lease, and another server took the job away.
pub const HOST_LOST: &str = "HOST_LOST";
/// The reason code if the attempt left its device idle for too long.
pub const IDLE: &str = "IDLE";
/// The reason code if the attempt reached its own maximum running time; the job continues in another attempt.
pub const RECYCLED: &str = "MAX_ATTEMPT_RUNTIME";
/// The reason code if the job's project or key has used up its device seconds.
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
