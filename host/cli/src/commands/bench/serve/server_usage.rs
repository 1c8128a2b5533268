//! What the server used while it was measured, from its metrics: processor time, device time and copied bytes.

use std::io::Read;

use serde::Serialize;

use crate::client::ApiClient;

/// Maximum bytes of the metrics that are read.
const METRICS_BYTES_MAX: u64 = 64 << 20;

/// Totals of the server's counters, or their difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct ServerUsage {
    /// Processor seconds of the server's process.
    pub(super) cpu_seconds: f64,
    /// Seconds in which its devices worked, for models and jobs.
    pub(super) device_seconds: f64,
    /// Bytes of models' tensors copied to devices and back.
    pub(super) copied_bytes: f64,
}

impl ServerUsage {
    /// Reads the totals. Returns `None` if the server does not show its metrics, for example without a key that may read
    /// them.
    pub(super) fn read(client: &ApiClient) -> Option<ServerUsage> {
        let mut text = String::new();
        let stream = client.get_stream("/metrics").ok()?;
        stream.take(METRICS_BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(ServerUsage::from_metrics(&text))
    }

    fn from_metrics(text: &str) -> ServerUsage {
        let sum = |family: &str| -> f64 {
            let value = |line: &str| {
                let rest = line.strip_prefix(family)?;
                let is_family = rest.starts_with(['{', ' ']);
                is_family.then(|| rest.rsplit(' ').next()?.parse::<f64>().ok()).flatten()
            };
            text.lines().filter_map(value).sum()
        };
        ServerUsage {
            cpu_seconds: sum("process_cpu_seconds_total"),
            device_seconds: sum("saggar_device_busy_seconds_total"),
            copied_bytes: sum("saggar_tensor_copy_bytes_total"),
        }
    }

    /// Returns what was used since then.
    pub(super) fn since(&self, before: &ServerUsage) -> ServerUsage {
        ServerUsage {
            cpu_seconds: (self.cpu_seconds - before.cpu_seconds).max(0.0),
            device_seconds: (self.device_seconds - before.device_seconds).max(0.0),
            copied_bytes: (self.copied_bytes - before.copied_bytes).max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_their_labels() {
        let text = "# HELP process_cpu_seconds_total x\nprocess_cpu_seconds_total 2.5\n\
                    saggar_device_busy_seconds_total{device=\"cpu\"} 1\nsaggar_device_busy_seconds_total{device=\"vulkan:0\"} 2\n\
                    saggar_device_busy_seconds_total_created{device=\"cpu\"} 100\n\
                    saggar_tensor_copy_bytes_total{device=\"cpu\",direction=\"host_to_device\"} 40\n";
        let usage = ServerUsage::from_metrics(text);
        assert_eq!(usage, ServerUsage { cpu_seconds: 2.5, device_seconds: 3.0, copied_bytes: 40.0 });
        assert_eq!(ServerUsage::default().since(&usage), ServerUsage::default());
    }
}
