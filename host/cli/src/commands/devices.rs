//! Lists the devices of this machine in a child process. Listing loads every driver, which would stay in the server's
//! memory and slow its start. The child has a time limit, because loading a driver can hang.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use saggar_device::DeviceInfo;
use serde::{Deserialize, Serialize};

use crate::exit::CliError;
use crate::output::CliOutput;

/// Maximum time of a driver.
pub(crate) const PROBE_TIME_MAX: Duration = Duration::from_secs(20);
/// How often the child is polled meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The end of a child process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// It printed this text and succeeded.
    Said(String),
    /// It failed or could not be started; the text describes how.
    Died(String),
    /// It was killed at the time limit.
    Silent,
}

/// A device as a line: the array of its properties.
#[derive(Serialize, Deserialize)]
struct DeviceLine(
    /* name */ String,
    /* adapter */ String,
    /* vendor */ String,
    /* driver */ String,
    /* backend */ String,
    /* software */ bool,
    /* exact_seconds */ bool,
    /* limits */ Vec<(String, u64)>,
    /* features */ Vec<String>,
);

impl From<DeviceInfo> for DeviceLine {
    fn from(info: DeviceInfo) -> DeviceLine {
        let DeviceInfo { name, adapter, vendor, driver, backend, software, exact_seconds, limits, features } = info;
        DeviceLine(name, adapter, vendor, driver, backend, software, exact_seconds, limits, features)
    }
}

impl From<DeviceLine> for DeviceInfo {
    fn from(line: DeviceLine) -> DeviceInfo {
        let DeviceLine(name, adapter, vendor, driver, backend, software, exact_seconds, limits, features) = line;
        DeviceInfo { name, adapter, vendor, driver, backend, software, exact_seconds, limits, features }
    }
}

/// Runs `saggar devices`: prints one line of JSON per device.
pub(crate) fn devices(output: CliOutput) -> Result<(), CliError> {
    for info in saggar_devices::list_devices() {
        let line = serde_json::to_string(&DeviceLine::from(info)).expect("a line has no objects");
        output.print_line(&line);
    }
    Ok(())
}

/// Runs `saggar devices` of `program` within a time limit and returns the devices.
///
/// # Errors
/// Returns how the process ended if it cannot be run, crashes or hangs, which a driver can cause.
pub(crate) fn query_devices(program: &Path, limit: Duration) -> Result<Vec<DeviceInfo>, ProcessEnd> {
    match run_with_timeout(Command::new(program).arg("devices"), limit) {
        ProcessEnd::Said(lines) => {
            let parse = |line| Some(serde_json::from_str::<DeviceLine>(line).ok()?.into());
            Ok(lines.lines().filter_map(parse).collect())
        }
        ended => Err(ended),
    }
}

/// Runs a process that prints a few lines, within a time limit.
pub(crate) fn run_with_timeout(command: &mut Command, limit: Duration) -> ProcessEnd {
    let began = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return ProcessEnd::Died(error.to_string()),
    };
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                // The output is a few lines at most, so it fitted into the pipe.
                let mut said = String::new();
                let read = child.stdout.take().map(|mut out| out.read_to_string(&mut said));
                let whole = matches!(read, Some(Ok(_))) && !said.trim().is_empty();
                return if whole { ProcessEnd::Said(said) } else { ProcessEnd::Died(status.to_string()) };
            }
            Ok(None) if began.elapsed() < limit => std::thread::sleep(POLL_INTERVAL),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return ProcessEnd::Silent;
            }
        }
    }
}
