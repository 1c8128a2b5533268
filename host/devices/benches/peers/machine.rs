//! A description of the machine on which the figures were measured.

use std::process::Command;

use saggar_device::DeviceInfo;

use crate::environment::PythonEnvironment;
use crate::measurement_context::BenchContext;

/// Returns the lines above the table.
pub(crate) fn describe(stage: &BenchContext) -> String {
    let info = stage.backend.info();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let on = stage.device.as_ref().map_or_else(String::new, |_| adapter_description(stage));
    format!(
        "- machine: {}, {cores} cores, {}\n- threads: {}\n- date: {}\n- turns: {} rounds of {} s each; \
         load average before: {}{on}",
        info.adapter,
        info.driver,
        stage.threads,
        first_line_of_command("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        stage.rounds,
        stage.seconds,
        load.split(' ').next().unwrap_or("?"),
    )
}

/// Returns a line for each adapter.
pub(crate) fn adapter_lines() -> Vec<String> {
    let line = |info: DeviceInfo| {
        let kind = if info.software { "software" } else { "hardware" };
        format!("{} {kind}: {}, {}", info.name, info.adapter, info.driver)
    };
    saggar_gpu::adapters().into_iter().map(line).collect()
}

/// Returns the additional lines above an adapter's table.
fn adapter_description(stage: &BenchContext) -> String {
    let info = stage.backend.info();
    let torch = stage.environment().map_or_else(|reason| reason, PythonEnvironment::torch_description);
    let mut lines = format!("\n- device: {}\n- peer: {torch}", info.name);
    if info.software {
        lines.push_str("\n- the adapter is software: these figures say nothing about speed");
    }
    if stage.small {
        lines.push_str("\n- small networks: these figures only show that the harness works");
    }
    lines
}

/// Returns the first line of a command's output, or `?`.
fn first_line_of_command(command: &str, arguments: &[&str]) -> String {
    let Ok(output) = Command::new(command).args(arguments).output() else { return "?".to_owned() };
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("?").to_owned()
}
