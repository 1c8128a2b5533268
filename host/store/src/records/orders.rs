//! What servers order of attempts that another server runs.

use saggar_clock::UnixMillis;
use serde::{Deserialize, Serialize};

use super::StateReason;

/// What a running attempt is ordered to do, besides stopping, which [`JobRecord::stop`](super::JobRecord::stop) says. Every claim resets it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOrders {
    /// The reason to save, return and queue the job again, or `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt: Option<StateReason>,
    /// Of a queued job: the server that preempts others for it, so that no other server does the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<RoomClaim>,
    /// The number of checkpoints that were requested of the attempt.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub checkpoints: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A server that makes room for a queued job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomClaim {
    /// The server's identifier.
    pub server_id: String,
    /// The time at which other servers can make room too: the server is gone, or could not start the job.
    pub until_ms: UnixMillis,
}

/// An order for a running attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// Save, return and queue the job again. The first reason stays.
    Preempt(StateReason),
    /// Save a checkpoint and continue.
    Checkpoint,
}
