//! Why an attempt may end without its training being at an end.

use serde::{Deserialize, Serialize};

/// What ended an attempt that another one may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
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

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 6] =
        [Cause::Preempted, Cause::DeviceLost, Cause::WorkerLost, Cause::HostRestart, Cause::NonFinite, Cause::Error];

    /// The causes that are not the plugin's doing.
    pub const NOT_THE_PLUGINS: [Cause; 4] =
        [Cause::Preempted, Cause::DeviceLost, Cause::WorkerLost, Cause::HostRestart];

    /// The name users see: `device-lost`.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Preempted => "preempted",
            Cause::DeviceLost => "device-lost",
            Cause::WorkerLost => "worker-lost",
            Cause::HostRestart => "host-restart",
            Cause::NonFinite => "non-finite",
            Cause::Error => "error",
        }
    }

    /// The cause that a recorded reason stands for; none for attempts that were ended for other reasons.
    pub fn of(code: &str) -> Option<Cause> {
        match code {
            PREEMPTED => Some(Cause::Preempted),
            DEVICE_LOST => Some(Cause::DeviceLost),
            WORKER_LOST => Some(Cause::WorkerLost),
            HOST_SHUTDOWN | HOST_RESTART => Some(Cause::HostRestart),
            NON_FINITE => Some(Cause::NonFinite),
            RECYCLED | OVER_BUDGET | "" => None,
            _ => Some(Cause::Error),
        }
    }

    /// Whether an attempt that ended for this cause counts against the job's retries.
    pub const fn counts(self) -> bool {
        match self {
            Cause::HostRestart => false,
            Cause::Preempted | Cause::DeviceLost | Cause::WorkerLost | Cause::NonFinite | Cause::Error => true,
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
    fn causes_have_one_name() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
        }
        assert_eq!(Cause::of("TRAP"), Some(Cause::Error));
        assert_eq!(Cause::of(RECYCLED), None);
        assert!(!Cause::HostRestart.counts());
    }
}
