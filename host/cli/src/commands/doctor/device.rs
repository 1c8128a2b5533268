//! Opens each device in a child process that has 20 seconds, because loading a driver can hang.

use std::process::Command;
use std::time::Duration;

use saggar_device::DeviceInfo;
use serde::{Deserialize, Serialize};

use super::{DoctorFinding, FindingState};
use crate::commands::devices::{self, ProcessEnd, run_with_timeout};
use crate::exit;
use crate::output::CliOutput;

/// Maximum time of a driver.
const PROBE_TIME_MAX: Duration = devices::PROBE_TIME_MAX;
/// The hint for a driver that hangs or crashes.
const DRIVER_HINT: &str =
    "update the GPU's driver; VK_DRIVER_FILES=FILE tries one driver alone; `--device cpu` does without";

/// Opens and checks the devices of this machine.
pub(super) fn check_devices() -> Vec<DoctorFinding> {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return vec![failed_probe("devices", &ProcessEnd::Died(error.to_string()))],
    };
    let listed = match devices::query_devices(&program, PROBE_TIME_MAX) {
        Ok(listed) => listed,
        Err(ended) => return vec![failed_probe("devices", &ended)],
    };
    let mut findings: Vec<DoctorFinding> = listed.iter().map(check_device).collect();
    if listed.iter().all(|device| device.backend == "cpu") {
        let hint = "install the GPU's Vulkan driver; without a GPU, mesa-vulkan-drivers runs that path in software";
        findings
            .push(DoctorFinding::new("vulkan", FindingState::Missing, "no Vulkan adapter was found").with_hint(hint));
    }
    findings
}

/// Opens and checks a device.
fn check_device(listed: &DeviceInfo) -> DoctorFinding {
    let software = if listed.software { ", software: correct, but slower than cpu" } else { "" };
    let found = check_selection(&listed.name);
    match found.state {
        FindingState::Ok => {
            let DeviceInfo { name, adapter, vendor, driver, exact_seconds, .. } = listed;
            let seconds = if *exact_seconds { "" } else { "; its seconds are estimated" };
            let what = format!("{adapter} ({vendor}, {driver}){software}{seconds}");
            DoctorFinding::new(name, FindingState::Ok, what).with_details(capabilities(listed))
        }
        FindingState::Missing | FindingState::Fixed | FindingState::Deprecated | FindingState::Failed => found,
    }
}

/// Returns a device's capabilities and limits in one line, or `None` if memory is its only limit.
fn capabilities(device: &DeviceInfo) -> Option<String> {
    let limits = device.limits.iter().map(|(name, most)| format!("{name} {most}"));
    let all: Vec<String> = device.features.iter().cloned().chain(limits).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// The line that the child process prints.
#[derive(Default, Serialize, Deserialize)]
struct DeviceProbe {
    opened: bool,
    what: String,
}

/// Checks which device `device` selects.
pub(super) fn check_selection(device: &str) -> DoctorFinding {
    let ended = match std::env::current_exe() {
        Ok(program) => run_with_timeout(Command::new(program).args(["doctor", "--probe", device]), PROBE_TIME_MAX),
        Err(error) => ProcessEnd::Died(error.to_string()),
    };
    match ended {
        ProcessEnd::Said(line) => {
            let DeviceProbe { opened, what } = serde_json::from_str(&line).unwrap_or_default();
            let state = if opened { FindingState::Ok } else { FindingState::Failed };
            DoctorFinding::new(device, state, what)
        }
        other => failed_probe(device, &other),
    }
}

fn failed_probe(device: &str, ended: &ProcessEnd) -> DoctorFinding {
    let what = match ended {
        ProcessEnd::Silent => format!("the driver did not answer within {} s", PROBE_TIME_MAX.as_secs()),
        ProcessEnd::Died(how) => format!("the driver ended its process: {how}"),
        ProcessEnd::Said(other) => format!("it said {other:?}"),
    };
    DoctorFinding::new(device, FindingState::Failed, what).with_hint(DRIVER_HINT)
}

/// Opens a device in this process and prints the result as a line of JSON.
pub(super) fn probe_device(device: &str, output: CliOutput) -> i32 {
    let (opened, what) = match saggar_devices::open(device) {
        Ok(choice) => (true, format!("takes {}: {}", choice.backend.info().name, choice.reason)),
        Err(error) => (false, error.to_string()),
    };
    output.print_json_line(&DeviceProbe { opened, what });
    if opened { 0 } else { exit::NO_DEVICE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hanging_driver_and_a_crashing_driver_are_distinguished() {
        let sh = |script: &str, limit| run_with_timeout(Command::new("sh").args(["-c", script]), limit);
        assert_eq!(sh("exec sleep 600", Duration::from_millis(50)), ProcessEnd::Silent);
        assert_eq!(sh("echo '{}'", PROBE_TIME_MAX), ProcessEnd::Said("{}\n".to_owned()));
        let ProcessEnd::Died(how) = sh("kill -SEGV $$", PROBE_TIME_MAX) else { panic!("it said something") };
        assert!(how.contains("signal"), "{how}");
        let finding = failed_probe("vulkan:0", &ProcessEnd::Silent);
        assert!(finding.what.contains("did not answer within 20 s") && finding.hint.is_some());
    }
}
