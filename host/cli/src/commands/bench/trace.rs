//! A profile as a trace that chrome://tracing and Perfetto show: a process for each device, with a row of dispatches and a row
//! of kernels. Source: "Trace Event Format", the JSON object form.

use std::io::BufWriter;
use std::path::Path;

use saggar_compile::cost::cost;
use serde_json::{Value, json};

use super::profile::{Kernels, named, percent, scaled};
use crate::exit::{self, Failure};

/// The row of dispatches.
const DISPATCHES: u32 = 1;
/// The row of kernels.
const KERNELS: u32 = 2;

/// Writes the trace of all devices.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(path: &Path, devices: &[&Kernels]) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::new(exit::UNEXPECTED, "write", format!("{}: {error}", path.display()));
    let file = std::fs::File::create(path).map_err(failed)?;
    serde_json::to_writer(BufWriter::new(file), &document(devices)).map_err(|error| failed(error.into()))
}

fn document(devices: &[&Kernels]) -> Value {
    let events: Vec<Value> = (1..).zip(devices).flat_map(|(number, kernels)| events(number, kernels)).collect();
    let device = |kernels: &&Kernels| {
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

/// Events of one device. Kernels follow each other from the beginning of their dispatch: only what each took is known.
fn events(process: u32, kernels: &Kernels) -> Vec<Value> {
    let row_name = |kind: &str, thread: u32, name: &str| json!({ "ph": "M", "name": kind, "pid": process, "tid": thread, "args": { "name": name } });
    let [operations, bytes] = [kernels.peak.operations_per_second, kernels.peak.bytes_per_second];
    let (name, adapter) = (&kernels.info.name, &kernels.info.adapter);
    let title = format!("{name}: {adapter}, peak {}, {}", scaled(operations, "FLOP/s"), scaled(bytes, "B/s"));
    let row = if kernels.is_estimated() { "kernels (times estimated)" } else { "kernels" };
    let mut events = vec![
        row_name("process_name", 0, &title),
        row_name("thread_name", DISPATCHES, "dispatches"),
        row_name("thread_name", KERNELS, row),
    ];
    for dispatched in &kernels.profile.dispatches {
        let program = &kernels.profile.programs[dispatched.program];
        let mut at = micros(dispatched.at.as_secs_f64());
        events.push(json!({
            "ph": "X", "cat": "dispatch", "name": format!("program {}", dispatched.program), "pid": process,
            "tid": DISPATCHES, "ts": at, "dur": micros(dispatched.took.as_secs_f64()),
            "args": { "kernels": program.kernels.len() },
        }));
        for (kernel, seconds) in program.kernels.iter().zip(kernels.seconds(dispatched)) {
            let cost = cost(program, kernel);
            let rates =
                [cost.operations, cost.bytes].map(|units| if seconds > 0.0 { units as f64 / seconds } else { 0.0 });
            events.push(json!({
                "ph": "X", "cat": "kernel", "name": named(program, kernel), "pid": process, "tid": KERNELS, "ts": at,
                "dur": micros(seconds),
                "args": {
                    "flop": cost.operations,
                    "bytes": cost.bytes,
                    "flop_per_second": rates[0],
                    "bytes_per_second": rates[1],
                    "percent_of_peak": percent(rates, kernels.peak),
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
