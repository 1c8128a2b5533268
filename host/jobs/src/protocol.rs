//! The protocol between a worker process and its supervisor, on one connection ([`crate::transport`]): one JSON object
//! per line. The worker sends a [`WorkerHello`] and then [`WorkerEvent`]s, and the supervisor sends [`WorkerCommand`]s,
//! first `Start` or `Refuse`. When the connection ends, the supervisor is gone, and the worker ends.
//!
//! A worker that is done ends its direction of the connection and waits until the supervisor, which has then received
//! every event, ends the other one. Unknown fields are ignored, so a later version of the hello can ask to continue an
//! attempt.

use std::collections::BTreeMap;
use std::path::PathBuf;

use saggar_fetch::FetchPolicy;
use saggar_notebook::NotebookToken;
use saggar_store::AccessRights;
use saggar_store::bucket_usage::BucketCount;
use saggar_store::records::{JobLease, MeetingPoint, PausePoint, PendingPublication};
use serde::{Deserialize, Serialize};

use crate::credentials::WorkerToken;
use crate::rank_network::RankNetwork;
use crate::spec::JobSpec;

/// The version of this protocol. Raised by every change that the other side would misunderstand.
pub const PROTOCOL_VERSION: u32 = 4;

/// Exit code of a worker that finished its work, or stopped as requested.
pub const EXIT_DONE: i32 = 0;
/// Exit code if the plugin failed; a retry would fail again.
pub const EXIT_FAILED: i32 = 20;
/// Exit code if the plugin exceeded a memory limit.
pub const EXIT_OUT_OF_MEMORY: i32 = 24;
/// Exit code if a retry can succeed: the device was lost, or the supervisor is gone.
pub const EXIT_TRY_AGAIN: i32 = 75;
/// Exit code if the job cannot run as it is configured; a retry would not help.
pub const EXIT_BROKEN: i32 = 78;

/// The first line of a worker. `protocol` and `token` have the same meaning in every version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerHello {
    /// The worker's [`PROTOCOL_VERSION`].
    pub protocol: u32,
    /// The attempt that the worker runs.
    #[serde(flatten)]
    pub lease: JobLease,
    /// The token of the worker's credentials.
    pub token: WorkerToken,
}

/// A command of the supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum WorkerCommand {
    /// The first line: the attempt to run.
    Start(Box<AttemptConfig>),
    /// The first line if the worker is not the one that a supervisor expects. The connection ends.
    Refuse {
        /// The server's [`PROTOCOL_VERSION`].
        protocol: u32,
        /// The reason, and what can be done about it.
        reason: String,
    },
    /// The supervisor's heartbeat.
    Alive,
    /// The attempt's lease was renewed after this heartbeat was received.
    LeaseRenewed {
        /// The number of the heartbeat.
        heartbeat: u64,
        /// The bytes in the bucket, if they count towards the storage quota.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bucket: Option<BucketCount>,
    },
    /// What the worker asked for is permitted.
    PermissionGranted {
        /// The number of the request.
        request: u64,
    },
    /// The attempt's lease is over: another server owns the job, or nobody. The worker ends.
    LeaseLost,
    /// Save a checkpoint at the next step boundary and return.
    Stop,
    /// Save a checkpoint at the next step boundary and continue.
    Checkpoint,
    /// The job pauses elsewhere than it was said before.
    Pause {
        /// Where to save a checkpoint and return; `None` if the job is not to pause.
        point: Option<PausePoint>,
    },
}

/// The configuration of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptConfig {
    /// The job's identifier.
    pub job: String,
    /// The job's name, `digits-7`.
    pub name: String,
    /// The attempt's number, from 1.
    pub attempt: u32,
    /// The lease's fencing epoch: a later attempt's is larger.
    pub epoch: u64,
    /// The rank of this process among the attempt's worker processes, from 0. The supervisor starts rank 0, which
    /// starts the others.
    #[serde(default)]
    pub rank: u32,
    /// Where rank 0 listens for the ranks of other hosts; `None` if all are on one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank_network: Option<RankNetwork>,
    /// The job's specification, with the device that its pool assigns.
    pub spec: JobSpec,
    /// Identifiers of the jobs that the specification refers to, by name.
    pub jobs: BTreeMap<String, String>,
    /// Steps of the job's checkpoints that other jobs start from, which are therefore kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_steps: Vec<u64>,
    /// The access rights of the key that submitted the job.
    pub rights: AccessRights,
    /// Whether the attempt's lease must be renewed, because other servers use the same records.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renews_lease: bool,
    /// Where to save a checkpoint and return, because the job is to pause there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<PausePoint>,
    /// The step from which a checkpoint of an earlier attempt includes all that the pause waits for. `None` if the
    /// training has to continue first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_from: Option<u64>,
    /// What a data step can fetch.
    #[serde(default, skip_serializing_if = "is_closed")]
    pub fetch: FetchPolicy,
    /// The address of the HTTP server, for notebooks, if it has one that this machine's programs can use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_url: Option<String>,
    /// The trace context of the attempt, as a `traceparent`, if the job is traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

fn is_closed(policy: &FetchPolicy) -> bool {
    *policy == FetchPolicy::default()
}

impl AttemptConfig {
    /// Returns the number of shards of each of the job's batches.
    pub(crate) fn shard_count(&self) -> u32 {
        self.spec.shards.unwrap_or(self.spec.replicas)
    }
}

/// The device and host resources that an attempt has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerUsage {
    /// Seconds that the device worked.
    pub gpu_seconds: f64,
    /// Seconds since the attempt began.
    pub wall_seconds: f64,
    /// Device bytes held now.
    pub gpu_bytes: u64,
    /// Maximum device bytes held at once.
    pub gpu_bytes_peak: u64,
    /// Number of samples trained on.
    pub samples: u64,
    /// Number of kernels run.
    pub dispatches: u64,
    /// Number of submissions to the device.
    pub submissions: u64,
    /// Seconds spent transferring dataset items to the device.
    #[serde(default)]
    pub data_seconds: f64,
    /// Seconds spent in all-reduce operations over worker processes, including waiting for the slowest.
    #[serde(default)]
    pub all_reduce_seconds: f64,
    /// Seconds spent saving checkpoints.
    #[serde(default)]
    pub checkpoint_seconds: f64,
}

/// An event of the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WorkerEvent {
    /// The plugin is about to run.
    Started {
        /// `cpu`, `vulkan:0`.
        device: String,
        /// The adapter's name.
        adapter: String,
        /// The adapter's driver.
        driver: String,
        /// Whether device seconds come from the device's own timer.
        exact_seconds: bool,
        /// Why this device was chosen.
        choice: String,
    },
    /// Variables, positions and state were restored from a checkpoint.
    Resumed {
        /// The checkpoint's step.
        step: u64,
    },
    /// A log line.
    Log {
        /// `debug`, `info`, `warn`, `error`.
        level: String,
        /// The line without its line end.
        line: String,
    },
    /// A value of one of the training's own series.
    Metric {
        /// The step.
        step: u64,
        /// The series.
        name: String,
        /// The value; `None` if it is not finite, because JSON has no NaN.
        value: Option<f64>,
    },
    /// The progress of the training.
    Progress {
        /// Steps done.
        step: u64,
        /// Steps to do.
        of: u64,
    },
    /// Resources used since the attempt began.
    Usage(WorkerUsage),
    /// A checkpoint is durable.
    Checkpoint {
        /// The step.
        step: u64,
        /// The size in bytes.
        bytes: u64,
        /// The time of saving, in seconds.
        seconds: f64,
        /// SHA-256 of its variables.
        digest: String,
    },
    /// A checkpoint could not be saved or loaded; the training continues with the previous one.
    CheckpointFailed {
        /// `save` or `load`.
        op: String,
        /// The reason.
        reason: String,
    },
    /// Rank 0 listens for the ranks of other hosts.
    RanksAwaited {
        /// What they need to connect.
        point: MeetingPoint,
    },
    /// All-reduce operations over the worker processes were done.
    AllReduced {
        /// Seconds of each operation, including waiting for the slowest process.
        seconds: Vec<f64>,
    },
    /// A phase of the job begins.
    Phase {
        /// The phase's name.
        name: String,
    },
    /// The worker waits for the permission to make something visible. Only if the attempt's lease must be renewed.
    PermissionRequested {
        /// Its number, from 1.
        request: u64,
        /// The version to publish; `None` for an output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        publication: Option<PendingPublication>,
    },
    /// A model version was published.
    Published {
        /// The model.
        model: String,
        /// The version.
        version: u64,
    },
    /// The worker's heartbeat.
    Alive {
        /// Its number, from 1; 0 if the attempt's lease needs no renewal.
        #[serde(default)]
        heartbeat: u64,
    },
    /// A publication was refused.
    PublicationRefused {
        /// The model.
        model: String,
        /// The reason, and what can be done about it.
        reason: String,
    },
    /// A step returned an output. All outputs are reported together, when the step has ended.
    StepOutput {
        /// The output's name.
        name: String,
        /// The name of its type.
        kind: String,
        /// Its value as text: of a file, the size and digest.
        value: String,
    },
    /// The notebook answers requests.
    NotebookReady {
        /// The path of its Unix socket.
        socket: PathBuf,
        /// The token that requests need.
        token: NotebookToken,
    },
    /// The notebook was idle for too long, and has to stop.
    NotebookIdle {
        /// How long, for people.
        sentence: String,
    },
    /// The plugin returned.
    Finished {
        /// Whether it returned because of a stop request.
        stopped: bool,
    },
    /// The state is saved, and the job can pause.
    Paused {
        /// The step.
        step: u64,
        /// The point that was reached.
        point: PausePoint,
    },
    /// The attempt failed.
    Failed {
        /// The reason code in UPPER_SNAKE_CASE.
        reason: String,
        /// A message for people.
        message: String,
    },
}

impl WorkerEvent {
    /// Returns the text of this event that comes from a plugin or an error, or `None` if it has none.
    pub(crate) fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            WorkerEvent::Log { line: text, .. }
            | WorkerEvent::Metric { name: text, .. }
            | WorkerEvent::CheckpointFailed { reason: text, .. }
            | WorkerEvent::Phase { name: text }
            | WorkerEvent::Published { model: text, .. }
            | WorkerEvent::PublicationRefused { reason: text, .. }
            | WorkerEvent::StepOutput { value: text, .. }
            | WorkerEvent::NotebookIdle { sentence: text }
            | WorkerEvent::Failed { message: text, .. } => Some(text),
            WorkerEvent::Started { .. }
            | WorkerEvent::Resumed { .. }
            | WorkerEvent::Progress { .. }
            | WorkerEvent::Usage(_)
            | WorkerEvent::Checkpoint { .. }
            | WorkerEvent::RanksAwaited { .. }
            | WorkerEvent::AllReduced { .. }
            | WorkerEvent::Alive { .. }
            | WorkerEvent::PermissionRequested { .. }
            | WorkerEvent::NotebookReady { .. }
            | WorkerEvent::Finished { .. }
            | WorkerEvent::Paused { .. } => None,
        }
    }
}
