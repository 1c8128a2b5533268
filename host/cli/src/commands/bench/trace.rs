//! Writes a profile as a trace for chrome://tracing and Perfetto: one process per device, with a row of dispatches and
//! a row of kernels. Source: "Trace Event Format", the JSON object form.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use saggar_compile::cost::kernel_cost;
use serde_json::{Value, json};

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

fn trace_document(devices: &[&KernelProfile]) -> Value {
    let events: Vec<Value> = (1..).zip(devices).flat_map(|(number, kernels)| trace_events(number, kernels)).collect();
    let device = |kernels: &&KernelProfile| {
        json!({
            "device": kernels.info.name,
            "adapter": kernels.info.adapter,
            "driver": kernels.info.driver,
            "software": kernels.info.software,
            "estimated": kernels.is_estimated(),
            "peak_flop_per_second": kernels.peak.operations_per_second,
            "peak_bytes_per_second": kernels.peak.bytes_per_second,
        })
    };
    let devices: Vec<Value> = devices.iter().map(device).collect();
    json!({ "displayTimeUnit": "ms", "otherData": { "devices": devices }, "traceEvents": events })
}

/// Returns the events of one device. Kernels are placed one after the other from the start of their dispatch, because
/// only their durations are known.
fn trace_events(process: u32, kernels: &KernelProfile) -> Vec<Value> {
    let row_name = |kind: &str, thread: u32, name: &str| json!({ "ph": "M", "name": kind, "pid": process, "tid": thread, "args": { "name": name } });
    let [operations, bytes] = [kernels.peak.operations_per_second, kernels.peak.bytes_per_second];
    let (name, adapter) = (&kernels.info.name, &kernels.info.adapter);
    let title = format!("{name}: {adapter}, peak {}, {}", format_si(operations, "FLOP/s"), format_si(bytes, "B/s"));
    let row = if kernels.is_estimated() { "kernels (times estimated)" } else { "kernels" };
    let mut events = vec![
        row_name("process_name", 0, &title),
        row_name("thread_name", DISPATCH_THREAD, "dispatches"),
        row_name("thread_name", KERNEL_THREAD, row),
    ];
    for dispatched in &kernels.profile.dispatches {
        let program = &kernels.profile.programs[dispatched.program];
        let mut at = micros(dispatched.started.as_secs_f64());
        events.push(json!({
            "ph": "X", "cat": "dispatch", "name": format!("program {}", dispatched.program), "pid": process,
            "tid": DISPATCH_THREAD, "ts": at, "dur": micros(dispatched.duration.as_secs_f64()),
            "args": { "kernels": program.kernels.len() },
        }));
        for (kernel, seconds) in program.kernels.iter().zip(kernels.kernel_seconds(dispatched)) {
            let cost = kernel_cost(program, kernel);
            let rates = rates_per_second(cost, seconds);
            events.push(json!({
                "ph": "X", "cat": "kernel", "name": kernel_label(program, kernel), "pid": process, "tid": KERNEL_THREAD, "ts": at,
                "dur": micros(seconds),
                "args": {
                    "flop": cost.operations,
                    "bytes": cost.bytes,
                    "flop_per_second": rates[0],
                    "bytes_per_second": rates[1],
                    "percent_of_peak": percent_of_peak(rates, kernels.peak),
                    "estimated": dispatched.kernels.is_none(),
                },
            }));
            at += micros(seconds);
        }
    }
    events
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
        assert!(serde_json::from_slice::<Value>(&text).unwrap()["traceEvents"].is_array());
        let place = tempfile::tempdir().unwrap();
        assert_eq!(create_trace_file(place.path()).unwrap_err().code, "write", "a directory is no file");
    }
}
