//! Workers that are child processes of the server.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncRead;
use tokio::process::{Child, Command};

use super::oom_kills::OomKillCounter;
use super::{
    ATTEMPT_SUBCOMMAND, DATABASE_URL_VARIABLE, LaunchRequest, SECRETS_KEY_VARIABLE, WorkerHandle, WorkerLauncher,
    WorkerSignal,
};
use crate::credentials::CREDENTIALS_VARIABLE;
use crate::error::JobError;
use crate::outcome::WorkerExit;
use crate::rank_network::{RANK_CREDENTIALS_VARIABLE, RankCredentials};
use crate::worker::WorkerLocations;

/// A launcher that runs workers as child processes.
#[derive(Clone, Debug)]
pub struct LocalLauncher {
    /// The `saggar` binary.
    pub program: PathBuf,
    /// Where the worker finds and stores data.
    pub locations: WorkerLocations,
}

/// The niceness of workers. Prediction requests on the same processors wait for milliseconds, so workers yield to them
/// and use the remaining time.
const NICENESS: &str = "10";
/// POSIX runs a program with a niceness by this command. It replaces itself by the program, so the process id is the
/// worker's.
const NICE: &str = "/usr/bin/nice";

impl LocalLauncher {
    /// Returns the command of a process of an attempt, without its credentials.
    fn attempt_command(&self) -> Command {
        let mut command = self.nice_command();
        command.args(["worker", ATTEMPT_SUBCOMMAND]).args(self.locations.arguments());
        for secret in [DATABASE_URL_VARIABLE, SECRETS_KEY_VARIABLE, CREDENTIALS_VARIABLE, RANK_CREDENTIALS_VARIABLE] {
            command.env_remove(secret);
        }
        command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        // Ctrl-C on the server's terminal must reach only the server, which lets workers save their state.
        command.process_group(0);
        command
    }

    fn spawn(&self, mut command: Command) -> Result<Box<dyn WorkerHandle>, JobError> {
        let launch = |source| JobError::Launch { program: self.program.display().to_string(), source };
        Ok(Box::new(WorkerProcess::new(command.spawn().map_err(launch)?)))
    }

    fn nice_command(&self) -> Command {
        if !Path::new(NICE).is_file() {
            return Command::new(&self.program);
        }
        let mut command = Command::new(NICE);
        command.arg("-n").arg(NICENESS).arg(&self.program);
        command
    }
}

impl WorkerLauncher for LocalLauncher {
    fn launch(&self, request: &LaunchRequest) -> Result<Box<dyn WorkerHandle>, JobError> {
        let mut command = self.attempt_command();
        command.env(CREDENTIALS_VARIABLE, request.credentials.to_json()).stdin(Stdio::null());
        self.spawn(command)
    }

    fn launch_rank(&self, credentials: &RankCredentials) -> Result<Box<dyn WorkerHandle>, JobError> {
        let mut command = self.attempt_command();
        let credentials = serde_json::to_string(credentials).expect("credentials are plain data");
        // The rank ends when its standard input does.
        command.env(RANK_CREDENTIALS_VARIABLE, credentials).stdin(Stdio::piped());
        self.spawn(command)
    }
}

/// A worker that is a child process.
#[derive(Debug)]
struct WorkerProcess {
    child: Child,
    description: String,
    memory_kills: Option<OomKillCounter>,
}

impl WorkerProcess {
    fn new(child: Child) -> WorkerProcess {
        let description = child.id().map_or_else(|| "an ended process".to_owned(), |id| format!("process {id}"));
        WorkerProcess { memory_kills: child.id().and_then(OomKillCounter::for_process), child, description }
    }
}

#[async_trait]
impl WorkerHandle for WorkerProcess {
    fn description(&self) -> String {
        self.description.clone()
    }

    fn take_output(&mut self) -> Option<Box<dyn AsyncRead + Send + Unpin>> {
        Some(Box::new(self.child.stderr.take()?))
    }

    fn signal(&mut self, signal: WorkerSignal) -> io::Result<()> {
        // The number of a process that was waited for can be another process's; the child has none then.
        let Some(id) = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) else { return Ok(()) };
        let signal = match signal {
            WorkerSignal::Terminate => Signal::TERM,
            WorkerSignal::Kill => Signal::KILL,
        };
        Ok(kill_process(id, signal)?)
    }

    async fn wait(&mut self) -> io::Result<WorkerExit> {
        let status = self.child.wait().await?;
        let memory_ran_out = self.memory_kills.as_ref().is_some_and(OomKillCounter::has_increased);
        Ok(WorkerExit { code: status.code(), signal: status.signal(), memory_ran_out })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn start(script: &str) -> WorkerProcess {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        WorkerProcess::new(command.spawn().unwrap())
    }

    #[tokio::test]
    async fn a_worker_process_reports_its_exit_code_and_its_output() {
        let mut worker = start("echo broken >&2; exit 75");
        assert!(worker.description().starts_with("process "));
        let mut text = String::new();
        worker.take_output().unwrap().read_to_string(&mut text).await.unwrap();
        assert!(worker.take_output().is_none());
        for _ in 0..2 {
            assert_eq!(
                worker.wait().await.unwrap(),
                WorkerExit { code: Some(75), signal: None, memory_ran_out: false }
            );
            worker.signal(WorkerSignal::Kill).unwrap();
        }
        assert_eq!(text, "broken\n");
    }

    #[tokio::test]
    async fn a_worker_process_is_ended_by_signals() {
        for (signal, number) in [(WorkerSignal::Terminate, 15), (WorkerSignal::Kill, 9)] {
            let mut worker = start("exec sleep 600");
            worker.signal(signal).unwrap();
            let exit = worker.wait().await.unwrap();
            assert_eq!((exit.code, exit.signal), (None, Some(number)));
        }
    }
}
