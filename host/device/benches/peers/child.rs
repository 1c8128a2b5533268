//! A peer in a process of its own, which answers a line of JSON for each line that it is told; see `protocol.py`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::turns::Timing;

/// A running peer; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct PeerProcess {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// What it said when it was ready.
    pub(crate) ready: Value,
}

impl PeerProcess {
    /// Starts one and waits until it is ready. What it writes as errors goes to `errors`.
    ///
    /// # Errors
    /// It cannot be started, or ends before it is ready.
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

    /// Measures for about so many seconds.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn run(&mut self, seconds: f64) -> Result<Timing, String> {
        self.run_mode(0, seconds)
    }

    /// As [`PeerProcess::run`], of one of several ways of computing the same.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn run_mode(&mut self, way: usize, seconds: f64) -> Result<Timing, String> {
        writeln!(self.commands, "run {seconds} {way}").map_err(|error| error.to_string())?;
        let answer = self.read_answer()?;
        let number = |name: &str| answer[name].as_f64().ok_or_else(|| format!("{answer} has no {name}"));
        Ok(Timing { best: number("best")?, median: number("median")? })
    }

    fn read_answer(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err("the peer has ended".to_owned()),
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
