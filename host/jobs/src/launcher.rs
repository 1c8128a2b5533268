//! Starts workers. The contract of a launcher: the worker runs `saggar worker` with pipes as its three standard
//! streams, it ends when its standard input ends, and its exit code gives the outcome of the attempt
//! ([`crate::protocol`]). The only implementation runs a child process of the server; one for a cluster would be
//! another.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::error::JobError;

/// A launcher of workers for attempts.
pub trait WorkerLauncher: Send + Sync + std::fmt::Debug {
    /// Starts a worker whose standard streams are pipes and which is killed when the handle is dropped. Called once per
    /// attempt, from the supervisor's task; must not block.
    ///
    /// # Errors
    /// `Launch`.
    fn launch(&self) -> Result<Child, JobError>;
}

/// A launcher that runs workers as child processes.
#[derive(Clone, Debug)]
pub struct LocalLauncher {
    /// The `saggar` binary.
    pub program: PathBuf,
    /// The state directory that the worker opens.
    pub home: PathBuf,
    /// The directory of model versions that the worker publishes to.
    pub models: PathBuf,
    /// Maximum bytes of everything that is stored; `None` for no limit.
    pub storage_quota: Option<u64>,
}

/// The niceness of workers. Prediction requests on the same processors wait for milliseconds, so workers yield to them
/// and use the remaining time.
const NICENESS: &str = "10";
/// POSIX runs a program with a niceness by this command. It replaces itself by the program, so the process id is the
/// worker's.
const NICE: &str = "/usr/bin/nice";

impl LocalLauncher {
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
    fn launch(&self) -> Result<Child, JobError> {
        let mut command = self.nice_command();
        command.arg("worker").arg("--home").arg(&self.home).arg("--models").arg(&self.models);
        if let Some(quota) = self.storage_quota {
            command.arg("--storage-quota").arg(quota.to_string());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        // Ctrl-C on the server's terminal must reach only the server, which lets workers save their state.
        command.process_group(0);
        let launch = |source| JobError::Launch { program: self.program.display().to_string(), source };
        command.spawn().map_err(launch)
    }
}
