//! What the figures were taken on.

use std::process::Command;

use crate::stage::Stage;

/// The lines above the table.
pub(crate) fn describe(stage: &Stage) -> String {
    let info = stage.backend.info();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "- machine: {}, {cores} cores, {}\n- threads: {}\n- date: {}\n- turns: {} rounds of {} s each; \
         load average before: {}",
        info.adapter,
        info.driver,
        stage.threads,
        said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        stage.rounds,
        stage.seconds,
        load.split(' ').next().unwrap_or("?"),
    )
}

/// The first line that a command says.
fn said(command: &str, arguments: &[&str]) -> String {
    let Ok(output) = Command::new(command).args(arguments).output() else { return "?".to_owned() };
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("?").to_owned()
}
