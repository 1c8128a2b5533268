//! Starting workers. The contract a launcher keeps: the worker runs `saggar worker` with pipes to its three standard
//! streams, ends by itself when its standard input does, and its exit code says what became of the attempt
//! ([`crate::protocol`]). A child process of the server is the first kind; a cluster's would be another.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::error::JobError;

/// Starts workers for attempts.
pub trait WorkerLauncher: Send + Sync + std::fmt::Debug {
    /// Starts a worker whose standard streams are pipes, and which is killed when the handle is dropped. Called once an
    /// attempt, from the supervisor's task; must not block.
    ///
    /// # Errors
    /// `Launch`.
    fn launch(&self) -> Result<Child, JobError>;
}

/// Runs workers as child processes of this one.
#[derive(Clone, Debug)]
pub struct LocalLauncher {
    /// The `saggar` binary.
    pub program: PathBuf,
    /// The state directory the worker opens.
    pub home: PathBuf,
    /// Where it publishes.
    pub models: PathBuf,
    /// Bytes that may be stored together; none is no limit.
    pub storage_quota: Option<u64>,
}

/// Steps back before requests for predictions on the same processor, which wait for milliseconds; what they leave is all its.
const NICENESS: &str = "10";
/// POSIX has a program that starts another one so. It replaces itself, so the process is the worker's own.
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
        // A Ctrl-C at the server's terminal is the server's to handle: it lets workers save their state.
        command.process_group(0);
        let launch = |source| JobError::Launch { program: self.program.display().to_string(), source };
        command.spawn().map_err(launch)
    }
}
