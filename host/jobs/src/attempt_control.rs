//! What the scheduler and users ask of a running attempt.

use saggar_store::records::{PausePoint, StateReason};

/// The scheduler's requests to an attempt's supervisor.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AttemptControl {
    /// Save and return, because of a user's stop request or a server shutdown.
    pub(crate) stop: bool,
    /// The reason to save, return and queue the job again; `None` without such a request.
    pub(crate) requeue: Option<StateReason>,
    /// Where to save, return and pause the job; `None` if it is not to pause.
    pub(crate) pause: Option<PausePoint>,
    /// The number of checkpoint requests so far.
    pub(crate) checkpoints: u64,
    /// The number of the worker's newest heartbeat before the last renewal of the attempt's lease.
    pub(crate) renewed_heartbeat: u64,
    /// Whether the attempt no longer owns the job.
    pub(crate) is_lease_lost: bool,
}
