//! Describes the machine of the measurements, and whether it was idle.

use std::process::Command;

/// The load average above which absolute figures are not reliable.
const LOAD_QUIET_MAX: f64 = 0.5;

/// Returns the lines above every table: machine, date, versions, load.
pub(crate) fn describe() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("?").trim_matches([' ', '\t', ':']);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let version = first_output_line(&saggar_tests::binary().display().to_string(), &["--version"]);
    format!(
        "machine: {model}, {cores} cores, Linux {}\ndate: {}\nversions: {version}, {}, {}",
        first_output_line("uname", &["-r"]),
        first_output_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        first_output_line("wrk", &["-v"]).split(" Copyright").next().unwrap_or_default(),
        first_output_line("python3", &["--version"]),
    )
}

/// Returns the first line of a command's output.
fn first_output_line(command: &str, arguments: &[&str]) -> String {
    let Ok(output) = Command::new(command).args(arguments).output() else { return format!("{command} ?") };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().unwrap_or("?").trim().to_owned()
}

/// Returns the load average: the number of running or runnable processes over the last minute.
pub(crate) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN)
}

/// Returns a warning if other processes were running before the measurement began.
pub(crate) fn noise_warning(load_before: f64) -> String {
    if load_before > LOAD_QUIET_MAX {
        format!(
            "load average before: {load_before:.2}\nWARNING: the machine is noisy; ratios of interleaved runs still say \
             something, absolute figures do not"
        )
    } else {
        format!("load average before: {load_before:.2}")
    }
}
