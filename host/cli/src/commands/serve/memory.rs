//! Default memory limits of requests and models.

use saggar_device::{DeviceInfo, available_host_bytes};
use saggar_serving::limits::{
    REQUEST_MEMORY_BYTES_DEFAULT, REQUEST_MEMORY_BYTES_MAX, REQUEST_MEMORY_BYTES_MIN, REQUEST_MEMORY_DIVISOR,
};

use crate::args::ServeArgs;

/// Bytes reserved for the server itself and for dataset ingestion.
const SERVER_MEMORY_RESERVED: u64 = 192 << 20;
/// The divisor of the remaining memory that models can use if they run in host memory.
const MODELS_MEMORY_PART: u64 = 2;

/// The memory limits of requests and models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryLimits {
    /// Maximum bytes of all requests together.
    pub(super) requests_bytes: u64,
    /// Maximum bytes of all models together on their device; `u64::MAX` means that only the device limits them.
    pub(super) models_bytes: u64,
}

impl MemoryLimits {
    /// Returns the limits of the command line, with defaults from the memory that is available now.
    pub(super) fn from_args(args: &ServeArgs, device: &DeviceInfo) -> MemoryLimits {
        let limits = MemoryLimits::default_for(available_host_bytes(), device.name == "cpu" || device.software);
        let limits = MemoryLimits {
            requests_bytes: args.request_memory_limit.unwrap_or(limits.requests_bytes),
            models_bytes: args.model_memory_limit.unwrap_or(limits.models_bytes),
        };
        tracing::info!(requests_bytes = limits.requests_bytes, models_bytes = limits.models_bytes, "memory limits");
        limits
    }

    /// Divides the available memory, less the server's reserve. Models on a device with separate memory are limited by
    /// that memory instead.
    fn default_for(available_bytes: Option<u64>, models_in_host: bool) -> MemoryLimits {
        let available_bytes = available_bytes.map(|bytes| bytes.saturating_sub(SERVER_MEMORY_RESERVED));
        let requests = available_bytes.map_or(REQUEST_MEMORY_BYTES_DEFAULT, |bytes| bytes / REQUEST_MEMORY_DIVISOR);
        let models = available_bytes.filter(|_| models_in_host).map_or(u64::MAX, |bytes| bytes / MODELS_MEMORY_PART);
        MemoryLimits {
            requests_bytes: requests.clamp(REQUEST_MEMORY_BYTES_MIN, REQUEST_MEMORY_BYTES_MAX),
            models_bytes: models,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_limits_are_a_quarter_for_requests_and_half_for_models_on_the_host() {
        let limits = |gib: u64, in_host| {
            let MemoryLimits { requests_bytes, models_bytes } = MemoryLimits::default_for(Some(gib << 30), in_host);
            (requests_bytes >> 20, models_bytes >> 20)
        };
        assert_eq!(limits(2, true), (464, 928));
        assert_eq!(limits(64, true), (4096, (32 << 10) - 96));
        assert_eq!(limits(2, false), (464, u64::MAX >> 20));
        assert_eq!(MemoryLimits::default_for(Some(1), true).requests_bytes, REQUEST_MEMORY_BYTES_MIN);
        assert_eq!(MemoryLimits::default_for(None, true).models_bytes, u64::MAX);
    }
}
