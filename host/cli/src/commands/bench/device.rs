//! Measurements on several devices in turn, and the format of devices and times.

use saggar_device::{Backend, DeviceInfo};
use saggar_plugin::PluginError;
use saggar_store::JobState;
use serde::Serialize;
use std::sync::Arc;

use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::units;

/// The measurement of each device by name, or its error.
pub(super) type DeviceResults<T> = Vec<(String, Result<T, CliError>)>;

/// Measures on each device of `names`. A failure is printed at once and does not stop the other devices.
pub(super) fn measure_on_each<T>(
    names: &[String],
    output: CliOutput,
    mut measure: impl FnMut(Arc<dyn Backend>) -> Result<T, CliError>,
) -> DeviceResults<T> {
    let measured = |name: &String| {
        let result = open_device(name).and_then(|device| {
            output.print_note(&format!("measuring on {}", format_device(device.info())));
            measure(device)
        });
        if let Err(failure) = &result {
            output.print_error(failure);
        }
        (name.clone(), result)
    };
    names.iter().map(measured).collect()
}

/// Returns the exit code of all measurements: that of the first failure, or 0.
pub(super) fn exit_code<T>(results: &DeviceResults<T>) -> i32 {
    results.iter().find_map(|(_, result)| result.as_ref().err()).map_or(0, |failure| failure.exit_code)
}

fn open_device(name: &str) -> Result<Arc<dyn Backend>, CliError> {
    let choice =
        saggar_devices::open(name).map_err(|error| CliError::new(exit::NO_DEVICE, "no_device", error.to_string()))?;
    Ok(choice.backend)
}

/// Formats a device as `vulkan:0: llvmpipe, software`.
fn format_device(info: &DeviceInfo) -> String {
    format!("{}: {}", info.name, adapter_label(info))
}

/// Returns the adapter's name, with a mark if it is a software adapter.
pub(super) fn adapter_label(info: &DeviceInfo) -> String {
    format!("{}{}", info.adapter, if info.software { ", software" } else { "" })
}

/// The result of a device as JSON: its measurements of type `T`, or why it has not been measured.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum BenchDeviceResult<'a, T> {
    Measured {
        device: &'a str,
        adapter: &'a str,
        driver: &'a str,
        software: bool,
        exact_seconds: bool,
        #[serde(flatten)]
        measured: T,
    },
    Failed {
        device: &'a str,
        error: BenchError<'a>,
    },
}

impl<'a, T> BenchDeviceResult<'a, T> {
    pub(super) fn measured(info: &'a DeviceInfo, measured: T) -> BenchDeviceResult<'a, T> {
        BenchDeviceResult::Measured {
            device: &info.name,
            adapter: &info.adapter,
            driver: &info.driver,
            software: info.software,
            exact_seconds: info.exact_seconds,
            measured,
        }
    }

    pub(super) fn failed(device: &'a str, failure: &'a CliError) -> BenchDeviceResult<'a, T> {
        BenchDeviceResult::Failed { device, error: failure.into() }
    }
}

/// A failure as JSON.
#[derive(Serialize)]
pub(super) struct BenchError<'a> {
    code: &'a str,
    message: &'a str,
}

impl<'a> From<&'a CliError> for BenchError<'a> {
    fn from(failure: &'a CliError) -> BenchError<'a> {
        BenchError { code: &failure.code, message: &failure.message }
    }
}

/// Converts a plugin's failure to an error of the command.
pub(super) fn plugin_error(error: &PluginError) -> CliError {
    let reason = error.reason().as_str();
    CliError::new(exit::code_for_job(JobState::Failed.name(), reason), &reason.to_lowercase(), error.to_string())
}

/// Formats a time with its unit: `840 us`, `12.3 ms`, `2.41 s`, `2m 06s`.
pub(super) fn format_seconds(seconds: f64) -> String {
    match seconds {
        0.0..0.001 => format!("{:.0} us", seconds * 1e6),
        0.001..1.0 => format!("{:.1} ms", seconds * 1e3),
        1.0..60.0 => format!("{seconds:.2} s"),
        _ => units::format_duration(seconds),
    }
}

/// Formats busy seconds. On a device without a timer they are wall time around its work, and marked as estimated, as
/// for jobs.
pub(super) fn format_busy_seconds(info: &DeviceInfo, seconds: f64) -> String {
    format!("{seconds:.2}{}", if info.exact_seconds { "" } else { " estimated" })
}

/// Formats a rate with about three significant digits: `1240`, `87.3`, `0.52`.
pub(super) fn format_rate(per_second: f64) -> String {
    match per_second {
        0.0..10.0 => format!("{per_second:.2}"),
        10.0..100.0 => format!("{per_second:.1}"),
        _ => format!("{per_second:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates_are_formatted_with_few_digits() {
        assert_eq!(
            [format_seconds(0.000_84), format_seconds(0.0123), format_seconds(2.414), format_seconds(126.0)],
            ["840 us", "12.3 ms", "2.41 s", "2m 06s"]
        );
        assert_eq!([format_rate(0.521), format_rate(87.31), format_rate(1_240.4)], ["0.52", "87.3", "1240"]);
    }

    #[test]
    fn busy_seconds_of_a_device_without_a_clock_are_marked_estimated() {
        let mut info = saggar_cpu::describe();
        assert_eq!(format_busy_seconds(&info, 1.5), "1.50 estimated");
        (info.backend, info.software) = ("vulkan".to_owned(), true);
        assert_eq!(format_busy_seconds(&info, 1.5), "1.50 estimated");
        assert!(adapter_label(&info).ends_with(", software"));
        info.exact_seconds = true;
        assert_eq!(format_busy_seconds(&info, 1.5), "1.50");
    }
}
