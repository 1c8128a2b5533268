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
}
