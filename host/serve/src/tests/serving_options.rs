//! Options of the test servers.

use std::sync::Arc;

use saggar_clock::{Clock, SystemClock};
use saggar_serving::FollowPolicy;
use saggar_serving::limits::REQUEST_MEMORY_BYTES_DEFAULT;

/// Memory limits, the versions that are served, and the clock.
#[derive(Clone, Debug)]
pub(super) struct ServingOptions {
    pub(super) models_bytes: u64,
    pub(super) requests_bytes: u64,
    pub(super) follow: FollowPolicy,
    pub(super) loads_on_demand: bool,
    pub(super) clock: Arc<dyn Clock>,
}

impl Default for ServingOptions {
    fn default() -> ServingOptions {
        ServingOptions {
            models_bytes: u64::MAX,
            requests_bytes: REQUEST_MEMORY_BYTES_DEFAULT,
            follow: FollowPolicy::Newest,
            loads_on_demand: false,
            clock: Arc::new(SystemClock),
        }
    }
}
