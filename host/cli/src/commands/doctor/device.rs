//! Devices, each opened by a process of its own that has 20 seconds: loading a driver is where machines hang.

use std::process::Command;
use std::time::Duration;

use saggar_device::{DeviceInfo, select};
use serde_json::{Value, json};

use super::{Finding, State};
use crate::commands::devices::{self, Ended, run};
use crate::exit;
use crate::output::Output;

/// How long a driver may take.
const LIMIT: Duration = devices::LIMIT;
/// What helps where a driver hangs or dies.
const DRIVER_HINT: &str =
    "update the GPU's driver; VK_DRIVER_FILES=FILE tries one driver alone; `--device cpu` does without";

/// The devices of this machine, each opened.
pub(super) fn devices() -> Vec<Finding> {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return vec![refused("devices", &Ended::Died(error.to_string()))],
    };
    let listed = match devices::ask(&program, LIMIT) {
        Ok(listed) => listed,
        Err(ended) => return vec![refused("devices", &ended)],
    };
    let mut findings: Vec<Finding> = listed.iter().map(opened).collect();
    if listed.iter().all(|device| device.backend == "cpu") {
        let hint = "install the GPU's Vulkan driver; without a GPU, mesa-vulkan-drivers runs that path in software";
        findings.push(Finding::new("vulkan", State::Missing, "no Vulkan adapter was found").hint(hint));
    }
    findings
}

/// A device, opened.
fn opened(listed: &DeviceInfo) -> Finding {
    let software = if listed.software { ", software: correct, but slower than cpu" } else { "" };
    let found = chosen(&listed.name);
    match found.state {
        State::Ok => {
            let DeviceInfo { name, adapter, vendor, driver, exact_seconds, .. } = listed;
            let seconds = if *exact_seconds { "" } else { "; its seconds are estimated" };
            let what = format!("{adapter} ({vendor}, {driver}){software}{seconds}");
            Finding::new(name, State::Ok, what).details(offered(listed))
        }
        State::Missing | State::Fixed | State::Failed => found,
    }
}

/// What a device has and can do at most, in a line; none where memory is its only limit.
fn offered(device: &DeviceInfo) -> Option<String> {
    let limits = device.limits.iter().map(|(name, most)| format!("{name} {most}"));
    let all: Vec<String> = device.features.iter().cloned().chain(limits).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// What is taken where `device` is asked for.
pub(super) fn chosen(device: &str) -> Finding {
    let ended = match std::env::current_exe() {
        Ok(program) => run(Command::new(program).args(["doctor", "--probe", device]), LIMIT),
        Err(error) => Ended::Died(error.to_string()),
    };
    match ended {
        Ended::Said(line) => {
            let answer: Value = serde_json::from_str(&line).unwrap_or_default();
            let what = answer["what"].as_str().unwrap_or_default();
            match answer["opened"].as_bool() {
                Some(true) => Finding::new(device, State::Ok, what),
                _ => Finding::new(device, State::Failed, what),
            }
        }
        other => refused(device, &other),
    }
}

fn refused(device: &str, ended: &Ended) -> Finding {
    let what = match ended {
        Ended::Silent => format!("the driver did not answer within {} s", LIMIT.as_secs()),
        Ended::Died(how) => format!("the driver ended its process: {how}"),
        Ended::Said(other) => format!("it said {other:?}"),
    };
    Finding::new(device, State::Failed, what).hint(DRIVER_HINT)
}

/// Opens a device in this process, and says so in a line of JSON.
pub(super) fn probe(device: &str, output: Output) -> i32 {
    let (opened, what) = match select::open(device) {
        Ok(choice) => (true, format!("takes {}: {}", choice.backend.info().name, choice.reason)),
        Err(error) => (false, error.to_string()),
    };
    output.json_line(&json!({ "opened": opened, "what": what }));
    if opened { 0 } else { exit::NO_DEVICE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_hangs_or_dies_is_told_apart_from_one_that_answers() {
        let sh = |script: &str, limit| run(Command::new("sh").args(["-c", script]), limit);
        assert_eq!(sh("exec sleep 600", Duration::from_millis(50)), Ended::Silent);
        assert_eq!(sh("echo '{}'", LIMIT), Ended::Said("{}\n".to_owned()));
        let Ended::Died(how) = sh("kill -SEGV $$", LIMIT) else { panic!("it said something") };
        assert!(how.contains("signal"), "{how}");
        let finding = refused("vulkan:0", &Ended::Silent);
        assert!(finding.what.contains("did not answer within 20 s") && finding.hint.is_some());
    }
}
