//! What servers order of attempts that another server runs.

use serde::{Deserialize, Serialize};

use super::StateReason;

/// What a running attempt is ordered to do, besides stopping, which [`JobRecord::stop`](super::JobRecord::stop) says. Every claim resets it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOrders {
    /// The reason to save, return and queue the job again, or `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt: Option<StateReason>,
    /// The number of checkpoints that were requested of the attempt.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub checkpoints: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An order for a running attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// Save, return and queue the job again. The first reason stays.
    Preempt(StateReason),
    /// Save a checkpoint and continue.
    Checkpoint,
}
