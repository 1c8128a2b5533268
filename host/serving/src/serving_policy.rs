//! The serving policy of a version: how its requests are queued and batched.

use std::time::Duration;

use saggar_compile::{DisabledOptimizations, Optimization};

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

impl ServingPolicy {
    /// Returns the policy without these optimizations: requests are computed alone, or repeated inputs again.
    #[must_use]
    pub(crate) fn without(self, without: DisabledOptimizations) -> ServingPolicy {
        let items_max = if without.enables(Optimization::Batching) { self.batch.items_max } else { 1 };
        let cache_bytes = if without.enables(Optimization::ResponseCache) { self.cache_bytes } else { 0 };
        ServingPolicy { batch: BatchPolicy { items_max, ..self.batch }, cache_bytes, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_and_the_response_cache_can_be_switched_off() {
        let batch = BatchPolicy { items_max: 32, delay_max: Duration::ZERO, slots: 2 };
        let policy = ServingPolicy { batch, capacity: 9, deadline: Duration::from_secs(1), cache_bytes: 100 };
        let without = |optimization| policy.without(DisabledOptimizations::NONE.with(optimization));
        assert_eq!(policy.without(DisabledOptimizations::NONE), policy);
        assert_eq!(without(Optimization::Batching).batch, BatchPolicy { items_max: 1, ..batch });
        assert_eq!(without(Optimization::Batching).cache_bytes, 100);
        assert_eq!(without(Optimization::ResponseCache), ServingPolicy { cache_bytes: 0, ..policy });
    }
}
