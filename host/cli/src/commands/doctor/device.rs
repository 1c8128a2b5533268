//! Devices, each opened by a process of its own that has 20 seconds: loading a driver is where machines hang.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use saggar_device::choose;
use serde_json::{Value, json};

use super::{Finding, State};
use crate::exit;
use crate::output::Output;

/// How long a driver may take.
const LIMIT: Duration = Duration::from_secs(20);
/// How often it is looked at meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// What helps where a driver hangs or dies.
const DRIVER_HINT: &str =
    "update the GPU's driver; VK_DRIVER_FILES=FILE tries one driver alone; `--device cpu` does without";

/// What became of a process.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// It printed this, and was done.
    Said(String),
    /// It ended otherwise.
    Died(String),
    /// It had to be killed.
    Silent,
}

/// The devices of this machine, each opened.
pub(super) fn devices() -> Vec<Finding> {
    let listed = match ask(&["devices"], LIMIT) {
        Ended::Said(lines) => lines,
        other => return vec![refused("devices", &other)],
    };
    let lines: Vec<Value> = listed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut findings: Vec<Finding> = lines.iter().map(opened).collect();
    if lines.iter().all(|device| device[4] == "cpu") {
        let hint = "install the GPU's Vulkan driver; without a GPU, mesa-vulkan-drivers runs that path in software";
        findings.push(Finding::new("vulkan", State::Missing, "no Vulkan adapter was found").hint(hint));
    }
    findings
}

/// A device as `saggar devices` lists it, opened.
fn opened(listed: &Value) -> Finding {
    let text = |at: usize| listed[at].as_str().unwrap_or("?");
    let software = if listed[5] == true { ", software: correct, but slower than cpu" } else { "" };
    let found = chosen(text(0));
    match found.state {
        State::Ok => {
            let what = format!("{} ({}, {}){software}", text(1), text(2), text(3));
            Finding::new(text(0), State::Ok, what)
        }
        State::Missing | State::Fixed | State::Failed => found,
    }
}

/// What is taken where `device` is asked for.
pub(super) fn chosen(device: &str) -> Finding {
    match ask(&["doctor", "--probe", device], LIMIT) {
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
    let (opened, what) = match choose::open(device) {
        Ok(choice) => (true, format!("takes {}: {}", choice.backend.info().name, choice.reason)),
        Err(error) => (false, error.to_string()),
    };
    output.json_line(&json!({ "opened": opened, "what": what }));
    if opened { 0 } else { exit::NO_DEVICE }
}

/// What this program says to these arguments, within a time.
fn ask(arguments: &[&str], limit: Duration) -> Ended {
    match std::env::current_exe() {
        Ok(program) => run(Command::new(program).args(arguments), limit),
        Err(error) => Ended::Died(error.to_string()),
    }
}

fn run(command: &mut Command, limit: Duration) -> Ended {
    let began = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return Ended::Died(error.to_string()),
    };
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                // A few lines at most: they fitted into the pipe.
                let mut said = String::new();
                let read = child.stdout.take().map(|mut out| out.read_to_string(&mut said));
                let whole = matches!(read, Some(Ok(_))) && !said.trim().is_empty();
                return if whole { Ended::Said(said) } else { Ended::Died(status.to_string()) };
            }
            Ok(None) if began.elapsed() < limit => std::thread::sleep(LOOK_INTERVAL),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Ended::Silent;
            }
        }
    }
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
