//! The serving policy of a version: how its requests are queued and batched.

use std::time::Duration;

/// The policy by which batches are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPolicy {
    /// Maximum number of items of a batch. A request with more items runs alone.
    pub items_max: usize,
    /// Maximum time that a request waits for others to join its batch while the model is busy.
    pub delay_max: Duration,
    /// Number of batches that can run at the same time.
    pub slots: usize,
}

/// The serving policy of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingPolicy {
    /// How batches are formed.
    pub batch: BatchPolicy,
    /// Predictions that can be queued or computed at the same time. Further ones are refused.
    pub capacity: usize,
    /// The deadline of a prediction if its client sets none.
    pub deadline: Duration,
    /// Bytes of the response cache. 0 disables it.
    pub cache_bytes: usize,
}
