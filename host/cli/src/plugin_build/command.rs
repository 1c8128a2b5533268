//! Runs other programs, with a time limit if needed.

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::BuildError;

/// Interval between checks whether a program with a time limit has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the command until it ends and returns its output, as far as that is piped.
pub(super) fn run_to_completion(command: &mut Command) -> Result<Output, BuildError> {
    let child = command.spawn().map_err(|source| spawn_error(command, source))?;
    child.wait_with_output().map_err(|source| spawn_error(command, source))
}

/// Runs the command for at most `limit` and returns its standard output, or `None` if it could not be started, failed
/// or took longer.
pub(super) fn run_with_timeout(command: &mut Command, limit: Duration) -> Option<String> {
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

/// Returns the error of a tool that failed.
pub(super) fn check(what: &str, output: Output) -> Result<(), BuildError> {
    if output.status.success() {
        return Ok(());
    }
    Err(BuildError::Tool { what: what.to_owned(), status: output.status, messages: error_text(&output) })
}

/// Returns what a tool wrote to standard error.
pub(super) fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

fn spawn_error(command: &Command, source: std::io::Error) -> BuildError {
    BuildError::Spawn { program: command.get_program().to_string_lossy().into_owned(), source }
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
