//! The limits of a model version, and the callback that gets the start of each instance.

use std::sync::Arc;
use std::time::Duration;

use crate::limits::{
    BATCH_BYTES_DEFAULT, LOAD_TIME_DEFAULT, MEMORY_BYTES_DEFAULT, MODEL_INSTANCES_DEFAULT, RESIDUAL_BYTES_DEFAULT,
};

/// Limits of one model version.
#[derive(Clone, Copy, Debug)]
pub struct ModelLimits {
    /// Linear memory of each instance, in bytes.
    pub memory_bytes: u64,
    /// Maximum number of warm instances, and therefore of concurrent calls.
    pub instances_max: usize,
    /// Time limit for loading and warming an instance.
    pub load_time: Duration,
    /// Device bytes that calls can leave allocated beyond what the version held when it was warm. Past this limit,
    /// instances are dropped with everything they hold, and the next call creates another one.
    pub residual_bytes_max: u64,
    /// Device bytes of programs up to which larger batch sizes are built.
    pub batch_bytes_max: u64,
}

impl Default for ModelLimits {
    fn default() -> ModelLimits {
        ModelLimits {
            memory_bytes: MEMORY_BYTES_DEFAULT,
            instances_max: MODEL_INSTANCES_DEFAULT,
            load_time: LOAD_TIME_DEFAULT,
            residual_bytes_max: RESIDUAL_BYTES_DEFAULT,
            batch_bytes_max: BATCH_BYTES_DEFAULT,
        }
    }
}

/// A callback that gets the time each instance took to instantiate, before its code was first called.
#[derive(Clone)]
pub struct InstanceStartHook(Arc<dyn Fn(Duration) + Send + Sync>);

impl InstanceStartHook {
    /// Returns a hook that calls `tell` for each instance.
    pub fn new(tell: impl Fn(Duration) + Send + Sync + 'static) -> InstanceStartHook {
        InstanceStartHook(Arc::new(tell))
    }

    pub(super) fn notify(&self, time: Duration) {
        (self.0)(time);
    }
}

impl std::fmt::Debug for InstanceStartHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Started")
    }
}
