//! Device usage of a model version in the metrics: memory held, dispatches and transferred bytes.

use std::time::Duration;

use parking_lot::Mutex;
use saggar_device::Meter;
use saggar_metrics::MetricsRegistry;

/// The owner label of models in `saggar_device_memory_bytes`.
const MEMORY_OWNER_LABEL: &str = "models";

/// The usage that has been added to the metrics.
#[derive(Debug, Default)]
struct ReportedDeviceUsage {
    bytes: u64,
    busy: Duration,
    dispatches: u64,
    submissions: u64,
    written_bytes: u64,
    read_bytes: u64,
}

/// A meter and the usage that has been added to the metrics. Versions that share a meter share the account, so that the
/// usage is counted once.
#[derive(Debug)]
pub struct DeviceUsageAccount {
    meter: Meter,
    reported: Mutex<ReportedDeviceUsage>,
}

impl DeviceUsageAccount {
    /// Creates an account of the meter's usage.
    pub fn new(meter: Meter) -> DeviceUsageAccount {
        DeviceUsageAccount { meter, reported: Mutex::default() }
    }

    /// Returns the device bytes that are held now.
    pub fn bytes(&self) -> u64 {
        self.meter.bytes()
    }

    /// Adds the usage since the last report to the metrics. Without `wait`, does nothing if another thread is
    /// reporting.
    pub(super) fn report(&self, metrics: &MetricsRegistry, device: &str, wait: bool) {
        let mut last = if wait {
            self.reported.lock()
        } else {
            let Some(last) = self.reported.try_lock() else { return };
            last
        };
        let meter = &self.meter;
        let (bytes, busy) = (meter.bytes(), meter.busy_time());
        let (dispatches, submissions) = (meter.dispatches(), meter.submissions());
        let (written_bytes, read_bytes) = (meter.written_bytes(), meter.read_bytes());
        let families = &metrics.families;
        if bytes != last.bytes {
            // Versions share the series, so each adds its own difference.
            families
                .device_memory
                .with_label_values(&[device, MEMORY_OWNER_LABEL])
                .add(bytes as f64 - last.bytes as f64);
        }
        if dispatches != last.dispatches {
            let of = [device];
            families.device_busy_seconds.with_label_values(&of).inc_by(busy.saturating_sub(last.busy).as_secs_f64());
            families.device_dispatches.with_label_values(&of).inc_by(dispatches.saturating_sub(last.dispatches) as f64);
            families
                .device_submissions
                .with_label_values(&of)
                .inc_by(submissions.saturating_sub(last.submissions) as f64);
        }
        for (direction, now, before) in
            [("host_to_device", written_bytes, last.written_bytes), ("device_to_host", read_bytes, last.read_bytes)]
        {
            if now != before {
                families.tensor_copy.with_label_values(&[device, direction]).inc_by(now.saturating_sub(before));
            }
        }
        *last = ReportedDeviceUsage { bytes, busy, dispatches, submissions, written_bytes, read_bytes };
    }
}
