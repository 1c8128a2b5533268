//! Writes a profile as a trace for chrome://tracing and Perfetto: one process per device, with a row of dispatches and
//! a row of kernels. Source: "Trace Event Format", the JSON object form.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use saggar_compile::cost::kernel_cost;
use serde::Serialize;

use super::profile::{KernelProfile, format_si, kernel_label, percent_of_peak, rates_per_second};
use crate::exit::{self, CliError};

/// The thread id of the row of dispatches.
const DISPATCH_THREAD: u32 = 1;
/// The thread id of the row of kernels.
const KERNEL_THREAD: u32 = 2;

/// Creates the trace file.
///
/// # Errors
/// Fails if the file cannot be created.
pub(super) fn create_trace_file(path: &Path) -> Result<File, CliError> {
    File::create(path).map_err(|error| write_error(path, &error))
}

/// Writes the trace of all devices to `to`, which was created at `path`.
///
/// # Errors
/// Fails if the trace cannot be written completely.
pub(super) fn write_trace(path: &Path, to: impl Write, devices: &[&KernelProfile]) -> Result<(), CliError> {
    let mut buffered = BufWriter::new(to);
    let written = serde_json::to_writer(&mut buffered, &trace_document(devices)).map_err(std::io::Error::from);
    // Flush explicitly: dropping the buffer would hide its write errors.
    written.and_then(|()| buffered.flush()).map_err(|error| write_error(path, &error))
}

fn write_error(path: &Path, error: &std::io::Error) -> CliError {
    CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", path.display()))
}

/// The trace. Source: "Trace Event Format", the JSON object form.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TraceDocument<'a> {
    display_time_unit: &'static str,
    other_data: TraceMetadata<'a>,
    trace_events: Vec<TraceEvent>,
}

#[derive(Serialize)]
struct TraceMetadata<'a> {
    devices: Vec<TraceDevice<'a>>,
}

#[derive(Serialize)]
struct TraceDevice<'a> {
    device: &'a str,
    adapter: &'a str,
    driver: &'a str,
    software: bool,
    estimated: bool,
    peak_flop_per_second: f64,
    peak_bytes_per_second: f64,
}

/// An event. `ph` is its phase, and times are in microseconds.
#[derive(Serialize)]
#[serde(tag = "ph")]
enum TraceEvent {
    /// The name of a process or thread.
    #[serde(rename = "M")]
    Name { name: &'static str, pid: u32, tid: u32, args: NameArguments },
    /// An event with a start and a duration.
    #[serde(rename = "X")]
    Complete { cat: &'static str, name: String, pid: u32, tid: u32, ts: f64, dur: f64, args: CompleteArguments },
}

#[derive(Serialize)]
struct NameArguments {
    name: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum CompleteArguments {
    Dispatch { kernels: usize },
    Kernel(KernelArguments),
}

#[derive(Serialize)]
struct KernelArguments {
    flop: u64,
    bytes: u64,
    flop_per_second: f64,
    bytes_per_second: f64,
    percent_of_peak: f64,
    estimated: bool,
}

fn trace_document<'a>(devices: &[&'a KernelProfile]) -> TraceDocument<'a> {
    let trace_events = (1..).zip(devices).flat_map(|(number, kernels)| trace_events(number, kernels)).collect();
    let device = |kernels: &&'a KernelProfile| TraceDevice {
        device: &kernels.info.name,
        adapter: &kernels.info.adapter,
        driver: &kernels.info.driver,
        software: kernels.info.software,
        estimated: kernels.is_estimated(),
        peak_flop_per_second: kernels.peak.operations_per_second,
        peak_bytes_per_second: kernels.peak.bytes_per_second,
    };
    let other_data = TraceMetadata { devices: devices.iter().map(device).collect() };
    TraceDocument { display_time_unit: "ms", other_data, trace_events }
}

/// Returns the events of one device. Kernels are placed one after the other from the start of their dispatch, because
/// only their durations are known.
fn trace_events(process: u32, kernels: &KernelProfile) -> Vec<TraceEvent> {
    let mut events = row_names(process, kernels);
    for dispatched in &kernels.profile.dispatches {
        let program = &kernels.profile.programs[dispatched.program];
        let mut at = micros(dispatched.started.as_secs_f64());
        events.push(TraceEvent::Complete {
            cat: "dispatch",
            name: format!("program {}", dispatched.program),
            pid: process,
            tid: DISPATCH_THREAD,
            ts: at,
            dur: micros(dispatched.duration.as_secs_f64()),
            args: CompleteArguments::Dispatch { kernels: program.kernels.len() },
        });
        for (kernel, seconds) in program.kernels.iter().zip(kernels.kernel_seconds(dispatched)) {
            let cost = kernel_cost(program, kernel);
            let rates = rates_per_second(cost, seconds);
            let args = CompleteArguments::Kernel(KernelArguments {
                flop: cost.operations,
                bytes: cost.bytes,
                flop_per_second: rates[0],
                bytes_per_second: rates[1],
                percent_of_peak: percent_of_peak(rates, kernels.peak),
                estimated: dispatched.kernels.is_none(),
            });
            let (name, dur) = (kernel_label(program, kernel), micros(seconds));
            events.push(TraceEvent::Complete {
                cat: "kernel",
                name,
                pid: process,
                tid: KERNEL_THREAD,
                ts: at,
                dur,
                args,
            });
            at += dur;
        }
    }
    events
}

/// Returns the events that name the device and its rows.
fn row_names(process: u32, kernels: &KernelProfile) -> Vec<TraceEvent> {
    let row_name = |kind, thread, name: &str| {
        let args = NameArguments { name: name.to_owned() };
        TraceEvent::Name { name: kind, pid: process, tid: thread, args }
    };
    let [operations, bytes] = [kernels.peak.operations_per_second, kernels.peak.bytes_per_second];
    let (name, adapter) = (&kernels.info.name, &kernels.info.adapter);
    let title = format!("{name}: {adapter}, peak {}, {}", format_si(operations, "FLOP/s"), format_si(bytes, "B/s"));
    let row = if kernels.is_estimated() { "kernels (times estimated)" } else { "kernels" };
    vec![
        row_name("process_name", 0, &title),
        row_name("thread_name", DISPATCH_THREAD, "dispatches"),
        row_name("thread_name", KERNEL_THREAD, row),
    ]
}

fn micros(seconds: f64) -> f64 {
    seconds * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full disk.
    struct FullDiskWriter;

    impl Write for FullDiskWriter {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_trace_that_cannot_be_written_completely_is_an_error() {
        let path = Path::new("out.json");
        // The trace is short, so all of it is buffered until the flush.
        let failure = write_trace(path, FullDiskWriter, &[]).unwrap_err();
        assert!(failure.message.starts_with("out.json: "), "{failure}");
        let mut text = Vec::new();
        write_trace(path, &mut text, &[]).unwrap();
        assert!(serde_json::from_slice::<serde_json::Value>(&text).unwrap()["traceEvents"].is_array());
        let place = tempfile::tempdir().unwrap();
        assert_eq!(create_trace_file(place.path()).unwrap_err().code, "write", "a directory is no file");
    }
}
