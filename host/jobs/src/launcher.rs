//! Starts workers. The contract of a launcher: the worker runs `saggar worker attempt` with the credentials of the request, on
//! any machine that reaches the server's address and the state directory. It ends when its connection ends, and its
//! exit code gives the outcome of the attempt ([`crate::protocol`]). [`LocalLauncher`] runs child processes of the
//! server; a launcher for a cluster would be another implementation.

use std::fmt::Debug;
use std::io;

use async_trait::async_trait;
use saggar_store::records::JobLease;
use tokio::io::AsyncRead;

use crate::credentials::WorkerCredentials;
use crate::error::JobError;
use crate::outcome::WorkerExit;
use crate::rank_network::RankCredentials;

mod local;
mod oom_kills;

pub use local::LocalLauncher;

/// A launcher of workers for attempts.
pub trait WorkerLauncher: Send + Sync + Debug {
    /// Starts the worker of an attempt. Called once per attempt, from the supervisor's task; must not block.
    ///
    /// # Errors
    /// `Launch`.
    fn launch(&self, request: &LaunchRequest) -> Result<Box<dyn WorkerHandle>, JobError>;

    /// Starts a rank of an attempt that another host leads. The rank ends with its connection to rank 0, and with this
    /// process. Called from a task of this host; must not block. A launcher that starts no ranks has the default.
    ///
    /// # Errors
    /// `Launch`.
    fn launch_rank(&self, credentials: &RankCredentials) -> Result<Box<dyn WorkerHandle>, JobError> {
        let program = format!("rank {}", credentials.identity.rank);
        Err(JobError::Launch { program, source: io::ErrorKind::Unsupported.into() })
    }
}

/// The attempt that a worker is started for.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchRequest {
    /// The job's name, `digits-7`.
    pub name: String,
    /// The attempt: job, number and epoch.
    pub lease: JobLease,
    /// The resources that the worker needs.
    pub resources: AttemptResources,
    /// What the worker needs to connect. The launcher must keep it out of the arguments of every process.
    pub credentials: WorkerCredentials,
}

/// The resources of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptResources {
    /// The device of the pool whose slots the attempt holds, such as `cpu` or `vulkan:0`.
    pub device: String,
    /// Slots, in thousandths.
    pub slots_milli: u32,
    /// Number of processes on this host. The worker starts all but the first.
    pub processes: u32,
    /// Maximum bytes of the plugin's memory, or `None` for the default.
    pub memory_bytes: Option<u64>,
    /// Maximum bytes on the device, or `None` for no limit.
    pub gpu_memory_bytes: Option<u64>,
}

/// The subcommand of `saggar worker` that runs the process of an attempt.
pub const ATTEMPT_SUBCOMMAND: &str = "attempt";

/// The environment variable with the URL of the records' database, which can contain a password. Workers do not get it.
pub const DATABASE_URL_VARIABLE: &str = "SAGGAR_DATABASE_URL";
/// The variable with the key that seals secrets in the database, which no worker gets.
pub const SECRETS_KEY_VARIABLE: &str = "SAGGAR_SECRETS_KEY";

/// A signal to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerSignal {
    /// Asks the process to end.
    Terminate,
    /// Ends the process, even if it is stopped.
    Kill,
}

/// A started worker. Dropping the handle kills the worker, so that no worker outlives its supervisor.
#[async_trait]
pub trait WorkerHandle: Send + Debug {
    /// Returns which worker this is, for people: `process 1234`.
    fn description(&self) -> String;

    /// Returns what the worker writes besides its connection, such as the message of a panic, or `None` if it was
    /// returned before. The stream ends with the worker. Called once, after the launch.
    fn take_output(&mut self) -> Option<Box<dyn AsyncRead + Send + Unpin>>;

    /// Sends a signal. Does nothing if the worker has ended. Must not block.
    ///
    /// # Errors
    /// An I/O error if the signal cannot be sent.
    fn signal(&mut self, signal: WorkerSignal) -> io::Result<()>;

    /// Waits until the worker has ended. Can be dropped and called again, also after the end.
    ///
    /// # Errors
    /// An I/O error if the worker's end cannot be observed.
    async fn wait(&mut self) -> io::Result<WorkerExit>;
}
