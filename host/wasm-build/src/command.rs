//! Runs other programs, with a time limit if needed.

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::WasmBuildError;

/// Interval between checks whether a program with a time limit has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the command until it ends and returns its output, as far as that is piped.
pub(crate) fn run_to_completion(command: &mut Command) -> Result<Output, WasmBuildError> {
    command.spawn().and_then(std::process::Child::wait_with_output).map_err(|source| WasmBuildError::Spawn {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })
}

/// Runs the command for at most `limit` and returns its standard output, or `None` if it could not be started, failed
/// or took longer.
pub(crate) fn run_with_timeout(command: &mut Command, limit: Duration) -> Option<String> {
    let deadline = Instant::now() + limit;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut stdout = child.stdout.take()?;
    // A program that writes more than the pipe's capacity ends only if its output is read.
    let reader = thread::spawn(move || {
        let mut written = Vec::new();
        stdout.read_to_end(&mut written).map(|_| written)
    });
    let status = loop {
        if let Some(status) = child.try_wait().ok()? {
            break status;
        }
        if Instant::now() >= deadline {
            // The program has possibly ended in between; after the wait it is gone in both cases.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    };
    let written = reader.join().ok()?.ok()?;
    status.success().then(|| String::from_utf8_lossy(&written).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_returns_output_only_within_its_timeout() {
        let limit = Duration::from_secs(20);
        assert_eq!(run_with_timeout(Command::new("sh").args(["-c", "echo yes"]), limit).as_deref(), Some("yes\n"));
        assert_eq!(run_with_timeout(Command::new("sh").args(["-c", "echo no; exit 1"]), limit), None);
        assert_eq!(run_with_timeout(&mut Command::new("no-program-of-this-name"), limit), None);
        assert_eq!(
            run_with_timeout(Command::new("sh").args(["-c", "read line < /dev/zero"]), Duration::from_millis(50)),
            None
        );
        let long = run_with_timeout(Command::new("sh").args(["-c", "seq 1 100000"]), limit).unwrap_or_default();
        assert_eq!(long.lines().count(), 100_000);
    }
}
