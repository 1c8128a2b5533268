//! Kernel times of a training, compared with the device's peak throughput. They are taken in a separate short training,
//! because profiling waits for each kernel and would slow the main measurement.

use std::collections::BTreeMap;
use std::sync::Arc;

use saggar_compile::cost::{KernelCost, kernel_cost};
use saggar_compile::program::{Kernel, Program};
use saggar_device::profile::{DeviceProfile, DispatchRecord, ProfilingBackend};
use saggar_device::roofline::{self, PeakThroughput};
use saggar_device::{Backend, DeviceInfo};
use saggar_plugin::PluginError;
use serde::Serialize;

use super::device;
use crate::exit::CliError;
use crate::output::CliOutput;

/// Maximum number of profiled steps.
pub(super) const STEPS_MAX: u64 = 20;
/// Maximum number of kernels shown per device.
const KERNELS_SHOWN_MAX: usize = 8;

/// The kernel times of a device.
pub(super) struct KernelProfile {
    pub(super) info: DeviceInfo,
    pub(super) peak: PeakThroughput,
    pub(super) profile: DeviceProfile,
}

/// The kernel times of a device as JSON.
#[derive(Serialize)]
pub(super) struct ProfileDocument {
    peak: PeakDocument,
    /// Whether the kernels' times are shares of their dispatches' times.
    estimated: bool,
    /// The slowest kernels.
    kernels: Vec<KernelDocument>,
}

/// The peak throughput of a device as JSON.
#[derive(Serialize)]
struct PeakDocument {
    flop_per_second: f64,
    bytes_per_second: f64,
}

/// All runs of one kernel as JSON.
#[derive(Serialize)]
struct KernelDocument {
    kernel: String,
    calls: u64,
    seconds: f64,
    flop_per_second: f64,
    bytes_per_second: f64,
    percent_of_peak: f64,
}

/// All runs of one kernel.
#[derive(Clone, Debug, PartialEq)]
struct KernelStats {
    label: String,
    calls: u64,
    seconds: f64,
    /// The cost of one run.
    cost: KernelCost,
}

impl KernelProfile {
    /// Measures the device's peak throughput, then runs `train` on the device while recording its kernels.
    ///
    /// # Errors
    /// Returns the errors of the device and of the training.
    pub(super) fn measure(
        device: &Arc<dyn Backend>,
        train: impl FnOnce(&Arc<dyn Backend>) -> Result<(), PluginError>,
    ) -> Result<KernelProfile, CliError> {
        let peak = roofline::measure(&**device).map_err(|error| device::plugin_error(&error.into()))?;
        let profiler = Arc::new(ProfilingBackend::new(Arc::clone(device)));
        let profiled: Arc<dyn Backend> = Arc::<ProfilingBackend>::clone(&profiler);
        train(&profiled).map_err(|error| device::plugin_error(&error))?;
        Ok(KernelProfile { info: device.info().clone(), peak, profile: profiler.profile() })
    }

    /// Returns the seconds of each kernel of a dispatch. On a device without a timer, the dispatch's time is divided by
    /// the minimum work of each kernel.
    pub(super) fn kernel_seconds(&self, dispatched: &DispatchRecord) -> Vec<f64> {
        if let Some(kernels) = &dispatched.kernels {
            return kernels.iter().map(|took| took.as_secs_f64()).collect();
        }
        let program = &self.profile.programs[dispatched.program];
        let costs: Vec<KernelCost> = program.kernels.iter().map(|kernel| kernel_cost(program, kernel)).collect();
        apportion_by_cost(dispatched.duration.as_secs_f64(), &costs, self.peak)
    }

    /// Returns whether the kernels' times are shares of their dispatches' times.
    pub(super) fn is_estimated(&self) -> bool {
        self.profile.dispatches.iter().any(|dispatched| dispatched.kernels.is_none())
    }

    /// Returns the statistics of all kernels, slowest first. A program's first dispatch includes one-time preparation,
    /// so it counts only if there is no other.
    fn kernel_stats(&self) -> Vec<KernelStats> {
        let mut dispatches: BTreeMap<usize, Vec<&DispatchRecord>> = BTreeMap::new();
        for dispatched in &self.profile.dispatches {
            dispatches.entry(dispatched.program).or_default().push(dispatched);
        }
        let mut stats = Vec::new();
        for (number, dispatches) in dispatches {
            let program = &self.profile.programs[number];
            let counted = if dispatches.len() > 1 { &dispatches[1..] } else { &dispatches[..] };
            let mut seconds = vec![0.0; program.kernels.len()];
            for dispatched in counted {
                seconds.iter_mut().zip(self.kernel_seconds(dispatched)).for_each(|(sum, took)| *sum += took);
            }
            let of = program.kernels.iter().zip(seconds).map(|(kernel, seconds)| KernelStats {
                label: kernel_label(program, kernel),
                calls: counted.len() as u64,
                seconds,
                cost: kernel_cost(program, kernel),
            });
            stats.extend(of);
        }
        stats.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        stats
    }

    /// Returns the peak and the slowest kernels as JSON.
    pub(super) fn document(&self) -> ProfileDocument {
        let kernel = |stats: KernelStats| {
            let [operations, bytes] = stats.rates_per_second();
            KernelDocument {
                calls: stats.calls,
                seconds: stats.seconds,
                flop_per_second: operations,
                bytes_per_second: bytes,
                percent_of_peak: stats.percent_of_peak(self.peak),
                kernel: stats.label,
            }
        };
        ProfileDocument {
            peak: PeakDocument {
                flop_per_second: self.peak.operations_per_second,
                bytes_per_second: self.peak.bytes_per_second,
            },
            estimated: self.is_estimated(),
            kernels: self.kernel_stats().into_iter().take(KERNELS_SHOWN_MAX).map(kernel).collect(),
        }
    }

    /// Prints the slowest kernels.
    pub(super) fn print(&self, output: CliOutput) {
        let stats = self.kernel_stats();
        let all: f64 = stats.iter().map(|stats| stats.seconds).sum();
        let row = |stats: &KernelStats| {
            let [operations, bytes] = stats.rates_per_second();
            vec![
                stats.label.clone(),
                stats.calls.to_string(),
                device::format_seconds(stats.seconds / stats.calls.max(1) as f64),
                format!("{:.1}%", 100.0 * stats.seconds / all.max(f64::MIN_POSITIVE)),
                format_si(operations, "FLOP/s"),
                format_si(bytes, "B/s"),
                format!("{:.0}%", stats.percent_of_peak(self.peak)),
            ]
        };
        let (name, how) = (&self.info.name, if self.is_estimated() { ", times estimated" } else { "" });
        let [operations, bytes] = [self.peak.operations_per_second, self.peak.bytes_per_second];
        output.print_note(&format!(
            "{name}: peak {}, {} as measured{how}",
            format_si(operations, "FLOP/s"),
            format_si(bytes, "B/s")
        ));
        let headers = ["KERNEL", "CALLS", "TIME", "SHARE", "FLOP/S", "BYTES/S", "OF PEAK"];
        output.print_table(&headers, &stats.iter().take(KERNELS_SHOWN_MAX).map(row).collect::<Vec<_>>());
    }
}

impl KernelStats {
    /// Returns the operations and bytes per second.
    fn rates_per_second(&self) -> [f64; 2] {
        rates_per_second(self.cost, self.seconds / self.calls.max(1) as f64)
    }

    fn percent_of_peak(&self, peak: PeakThroughput) -> f64 {
        percent_of_peak(self.rates_per_second(), peak)
    }
}

/// Returns a kernel's label and outputs: `conv2d float32[32, 28, 28, 6]`.
pub(super) fn kernel_label(program: &Program, kernel: &Kernel) -> String {
    let written =
        kernel.body.written_values().first().map(|value| program.values[value.index()].descriptor.to_string());
    format!("{} {}", kernel.label, written.unwrap_or_default()).trim_end().to_owned()
}

/// Returns the operations and bytes per second of work that takes `seconds`.
pub(super) fn rates_per_second(cost: KernelCost, seconds: f64) -> [f64; 2] {
    [cost.operations, cost.bytes].map(|units| if seconds > 0.0 { units as f64 / seconds } else { 0.0 })
}

/// Returns the utilization in percent of the peak, of operations or of bytes. The larger of the two is returned,
/// because that resource limits the kernel.
pub(super) fn percent_of_peak(rates: [f64; 2], peak: PeakThroughput) -> f64 {
    100.0 * share_of_peak(rates, peak)
}

/// Returns the larger ratio of `operations` and `bytes` to the device's peak per second.
fn share_of_peak([operations, bytes]: [f64; 2], peak: PeakThroughput) -> f64 {
    (operations / peak.operations_per_second).max(bytes / peak.bytes_per_second)
}

/// Divides a dispatch's time in proportion to each kernel's time at the peak.
fn apportion_by_cost(seconds: f64, costs: &[KernelCost], peak: PeakThroughput) -> Vec<f64> {
    let least = |cost: &KernelCost| share_of_peak([cost.operations as f64, cost.bytes as f64], peak);
    let all: f64 = costs.iter().map(least).sum();
    costs.iter().map(|cost| if all > 0.0 { seconds * least(cost) / all } else { 0.0 }).collect()
}

/// Formats a value with an SI prefix: `12.3 GFLOP/s`.
pub(super) fn format_si(value: f64, unit: &str) -> String {
    let (value, prefix) = match value {
        1e12.. => (value / 1e12, "T"),
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e3.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{value:.1} {prefix}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEAK: PeakThroughput = PeakThroughput { operations_per_second: 1e9, bytes_per_second: 1e8 };

    #[test]
    fn dispatch_time_is_apportioned_by_kernel_cost() {
        let cost = |operations, bytes| KernelCost { operations, bytes };
        // At the peak the first takes 2 ms for its operations, and the second 1 ms for its bytes.
        let shares = apportion_by_cost(0.9, &[cost(2_000_000, 10), cost(10, 100_000), cost(0, 0)], PEAK);
        assert!(
            shares.iter().zip([0.6, 0.3, 0.0]).all(|(share, expected)| (share - expected).abs() < 1e-9),
            "{shares:?}"
        );
        assert_eq!(apportion_by_cost(0.9, &[cost(0, 0)], PEAK), [0.0]);
    }

    #[test]
    fn percent_of_peak_is_the_larger_of_compute_and_bandwidth() {
        let cost = KernelCost { operations: 1_000, bytes: 1_000 };
        let stats = KernelStats { label: "k".to_owned(), calls: 10, seconds: 1e-3, cost };
        assert_eq!((stats.rates_per_second(), stats.percent_of_peak(PEAK).round()), ([1e7, 1e7], 10.0));
        assert_eq!(
            [format_si(1e7, "B/s"), format_si(2.34e12, "FLOP/s"), format_si(3.0, "B/s")],
            ["10.0 MB/s", "2.3 TFLOP/s", "3.0 B/s"]
        );
    }
}
