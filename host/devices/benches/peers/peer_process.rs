//! A peer process that answers each command line with a line of JSON; see `protocol.py`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::interleaved_runs::Timing;

/// A running peer process; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct PeerProcess {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The facts it reported when it was ready.
    pub(crate) ready: Value,
}

impl PeerProcess {
    /// Starts the process and waits until it is ready. Its standard error goes to the file `errors`.
    ///
    /// # Errors
    /// Returns an error if it cannot be started or ends before it is ready.
    pub(crate) fn start(command: &mut Command, errors: &std::path::Path) -> Result<PeerProcess, String> {
        let file = std::fs::File::create(errors).map_err(|error| format!("{}: {error}", errors.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let (commands, answers) = (child.stdin.take(), child.stdout.take());
        let (Some(commands), Some(answers)) = (commands, answers) else { return Err("no pipes".to_owned()) };
        let mut peer = PeerProcess { child, commands, answers: BufReader::new(answers), ready: Value::Null };
        peer.ready = peer.read_answer().map_err(|reason| {
            let said = std::fs::read_to_string(errors).unwrap_or_default();
            said.trim_end().lines().last().map_or(reason, str::to_owned)
        })?;
        Ok(peer)
    }

    /// Measures for about this many seconds.
    ///
    /// # Errors
    /// Returns an error if the process does not answer.
    pub(crate) fn run(&mut self, seconds: f64) -> Result<Timing, String> {
        self.run_mode(0, seconds)
    }

    /// Measures like [`PeerProcess::run`], in the given mode of the peer.
    ///
    /// # Errors
    /// Returns an error if the process does not answer.
    pub(crate) fn run_mode(&mut self, way: usize, seconds: f64) -> Result<Timing, String> {
        writeln!(self.commands, "run {seconds} {way}").map_err(|error| error.to_string())?;
        let answer = self.read_answer()?;
        let number = |name: &str| answer[name].as_f64().ok_or_else(|| format!("{answer} has no {name}"));
        Ok(Timing { best: number("best")?, median: number("median")? })
    }

    fn read_answer(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err("the peer process has ended".to_owned()),
            Ok(_) => serde_json::from_str(&line).map_err(|error| format!("{line}: {error}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
