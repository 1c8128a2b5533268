//! What the kernels of a training take, beside the most that the device does: a short training of its own, so that the
//! figures of the other one are taken without waiting for kernels.

use std::collections::BTreeMap;
use std::sync::Arc;

use saggar_compile::cost::{KernelCost, kernel_cost};
use saggar_compile::program::{Kernel, Program};
use saggar_device::profile::{DeviceProfile, DispatchRecord, ProfilingBackend};
use saggar_device::roofline::{self, PeakThroughput};
use saggar_device::{Backend, DeviceInfo};
use saggar_plugin::PluginError;
use serde_json::{Value, json};

use super::device;
use crate::exit::Failure;
use crate::output::Output;

/// Steps that are profiled at most.
pub(super) const STEPS_MAX: u64 = 20;
/// Kernels that are shown of a device.
const SHOWN: usize = 8;

/// What a device's kernels took.
pub(super) struct Kernels {
    pub(super) info: DeviceInfo,
    pub(super) peak: PeakThroughput,
    pub(super) profile: DeviceProfile,
}

/// All runs of one kernel.
#[derive(Clone, Debug, PartialEq)]
struct Stats {
    label: String,
    calls: u64,
    seconds: f64,
    /// Of one run.
    cost: KernelCost,
}

impl Kernels {
    /// Measures the device's peak, and has `train` train on it while kernels are written down.
    ///
    /// # Errors
    /// Those of the device and of the training.
    pub(super) fn of(
        device: &Arc<dyn Backend>,
        train: impl FnOnce(&Arc<dyn Backend>) -> Result<(), PluginError>,
    ) -> Result<Kernels, Failure> {
        let peak = roofline::measure(&**device).map_err(|error| device::plugin_failure(&error.into()))?;
        let profiler = Arc::new(ProfilingBackend::new(Arc::clone(device)));
        let profiled: Arc<dyn Backend> = Arc::<ProfilingBackend>::clone(&profiler);
        train(&profiled).map_err(|error| device::plugin_failure(&error))?;
        Ok(Kernels { info: device.info().clone(), peak, profile: profiler.profile() })
    }

    /// Seconds of each kernel of a dispatch; shared out by what they have to do at least where the device has no clock.
    pub(super) fn seconds(&self, dispatched: &DispatchRecord) -> Vec<f64> {
        if let Some(kernels) = &dispatched.kernels {
            return kernels.iter().map(|took| took.as_secs_f64()).collect();
        }
        let program = &self.profile.programs[dispatched.program];
        let costs: Vec<KernelCost> = program.kernels.iter().map(|kernel| kernel_cost(program, kernel)).collect();
        shared_out(dispatched.duration.as_secs_f64(), &costs, self.peak)
    }

    /// Whether kernels' times are shares of their dispatches' times.
    pub(super) fn is_estimated(&self) -> bool {
        self.profile.dispatches.iter().any(|dispatched| dispatched.kernels.is_none())
    }

    /// All kernels, those first that took most. A program's first dispatch, which makes ready what later ones find, counts
    /// only where there is no other.
    fn stats(&self) -> Vec<Stats> {
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
                seconds.iter_mut().zip(self.seconds(dispatched)).for_each(|(sum, took)| *sum += took);
            }
            let of = program.kernels.iter().zip(seconds).map(|(kernel, seconds)| Stats {
                label: named(program, kernel),
                calls: counted.len() as u64,
                seconds,
                cost: kernel_cost(program, kernel),
            });
            stats.extend(of);
        }
        stats.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        stats
    }

    /// The kernels that took most, and the peak, as fields of an answer.
    pub(super) fn json(&self) -> Value {
        let stats = self.stats();
        let kernel = |stats: &Stats| {
            let [operations, bytes] = stats.rates();
            json!({
                "kernel": stats.label,
                "calls": stats.calls,
                "seconds": stats.seconds,
                "flop_per_second": operations,
                "bytes_per_second": bytes,
                "percent_of_peak": stats.percent(self.peak),
            })
        };
        json!({
            "peak": {
                "flop_per_second": self.peak.operations_per_second,
                "bytes_per_second": self.peak.bytes_per_second,
            },
            "estimated": self.is_estimated(),
            "kernels": stats.iter().take(SHOWN).map(kernel).collect::<Vec<_>>(),
        })
    }

    /// Prints the kernels that took most.
    pub(super) fn show(&self, output: Output) {
        let stats = self.stats();
        let all: f64 = stats.iter().map(|stats| stats.seconds).sum();
        let row = |stats: &Stats| {
            let [operations, bytes] = stats.rates();
            vec![
                stats.label.clone(),
                stats.calls.to_string(),
                device::time(stats.seconds / stats.calls.max(1) as f64),
                format!("{:.1}%", 100.0 * stats.seconds / all.max(f64::MIN_POSITIVE)),
                scaled(operations, "FLOP/s"),
                scaled(bytes, "B/s"),
                format!("{:.0}%", stats.percent(self.peak)),
            ]
        };
        let (name, how) = (&self.info.name, if self.is_estimated() { ", times estimated" } else { "" });
        let [operations, bytes] = [self.peak.operations_per_second, self.peak.bytes_per_second];
        output.note(&format!(
            "{name}: peak {}, {} as measured{how}",
            scaled(operations, "FLOP/s"),
            scaled(bytes, "B/s")
        ));
        let headers = ["KERNEL", "CALLS", "TIME", "SHARE", "FLOP/S", "BYTES/S", "OF PEAK"];
        output.table(&headers, &stats.iter().take(SHOWN).map(row).collect::<Vec<_>>());
    }
}

impl Stats {
    /// Operations and bytes in a second.
    fn rates(&self) -> [f64; 2] {
        rates(self.cost, self.seconds / self.calls.max(1) as f64)
    }

    fn percent(&self, peak: PeakThroughput) -> f64 {
        percent(self.rates(), peak)
    }
}

/// A kernel's label and what it writes: `conv2d float32[32, 28, 28, 6]`.
pub(super) fn named(program: &Program, kernel: &Kernel) -> String {
    let written =
        kernel.body.written_values().first().map(|value| program.values[value.index()].descriptor.to_string());
    format!("{} {}", kernel.label, written.unwrap_or_default()).trim_end().to_owned()
}

/// Operations and bytes in a second of what takes `seconds`.
pub(super) fn rates(cost: KernelCost, seconds: f64) -> [f64; 2] {
    [cost.operations, cost.bytes].map(|units| if seconds > 0.0 { units as f64 / seconds } else { 0.0 })
}

/// How near rates of operations and of bytes come to the peak, in percent: the nearer of the two, which is what holds the
/// kernel back.
pub(super) fn percent(rates: [f64; 2], peak: PeakThroughput) -> f64 {
    100.0 * of_peak(rates, peak)
}

/// The larger share: of what the device does in a second, so many operations or so many bytes.
fn of_peak([operations, bytes]: [f64; 2], peak: PeakThroughput) -> f64 {
    (operations / peak.operations_per_second).max(bytes / peak.bytes_per_second)
}

/// A dispatch's time, shared out by what each kernel would take at the peak.
fn shared_out(seconds: f64, costs: &[KernelCost], peak: PeakThroughput) -> Vec<f64> {
    let least = |cost: &KernelCost| of_peak([cost.operations as f64, cost.bytes as f64], peak);
    let all: f64 = costs.iter().map(least).sum();
    costs.iter().map(|cost| if all > 0.0 { seconds * least(cost) / all } else { 0.0 }).collect()
}

/// `12.3 GFLOP/s`.
pub(super) fn scaled(value: f64, unit: &str) -> String {
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
    fn a_time_without_a_clock_is_shared_out_by_work() {
        let cost = |operations, bytes| KernelCost { operations, bytes };
        // At the peak the first takes 2 ms for its operations, and the second 1 ms for its bytes.
        let shares = shared_out(0.9, &[cost(2_000_000, 10), cost(10, 100_000), cost(0, 0)], PEAK);
        assert!(
            shares.iter().zip([0.6, 0.3, 0.0]).all(|(share, expected)| (share - expected).abs() < 1e-9),
            "{shares:?}"
        );
        assert_eq!(shared_out(0.9, &[cost(0, 0)], PEAK), [0.0]);
    }

    #[test]
    fn a_kernel_is_as_near_to_the_peak_as_the_nearer_of_its_rates() {
        let cost = KernelCost { operations: 1_000, bytes: 1_000 };
        let stats = Stats { label: "k".to_owned(), calls: 10, seconds: 1e-3, cost };
        assert_eq!((stats.rates(), stats.percent(PEAK).round()), ([1e7, 1e7], 10.0));
        assert_eq!(
            [scaled(1e7, "B/s"), scaled(2.34e12, "FLOP/s"), scaled(3.0, "B/s")],
            ["10.0 MB/s", "2.3 TFLOP/s", "3.0 B/s"]
        );
    }
}
