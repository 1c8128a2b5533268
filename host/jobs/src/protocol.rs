//! What a worker process and its supervisor say to each other: one JSON object a line, events on the worker's standard
//! output, commands on its standard input. The end of its standard input tells a worker that its supervisor is gone.

use std::collections::BTreeMap;

use saggar_store::AccessRights;
use serde::{Deserialize, Serialize};

use crate::spec::JobSpec;

/// A worker that did all it was asked, or stopped as it was told.
pub const EXIT_DONE: i32 = 0;
/// The plugin failed; trying again would fail again.
pub const EXIT_FAILED: i32 = 20;
/// The plugin passed a limit on memory.
pub const EXIT_OUT_OF_MEMORY: i32 = 24;
/// Try again: the device was lost, or the supervisor is gone.
pub const EXIT_TRY_AGAIN: i32 = 75;
/// The job cannot run as it is configured; trying again would not help.
pub const EXIT_BROKEN: i32 = 78;

/// From the supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum WorkerCommand {
    /// The first line: what to do.
    Start(Box<AttemptConfig>),
    /// Save a checkpoint at the next step boundary and return.
    Stop,
    /// Save a checkpoint at the next step boundary and go on.
    Checkpoint,
}

/// What an attempt needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptConfig {
    /// The job's identifier.
    pub job: String,
    /// The job's name, `digits-7`.
    pub name: String,
    /// From 1.
    pub attempt: u32,
    /// The lease's fencing epoch: a later attempt's is larger.
    pub epoch: u64,
    /// Which of the attempt's worker processes this is, from 0. The supervisor starts the first, and that the others.
    #[serde(default)]
    pub rank: u32,
    /// The job, with the device that its pool gives it.
    pub spec: JobSpec,
    /// Identifiers of the jobs that it names, by their names.
    pub jobs: BTreeMap<String, String>,
    /// What the key may do that the job was submitted with.
    pub rights: AccessRights,
}

/// Device and host resources an attempt used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerUsage {
    /// Seconds the device worked.
    pub gpu_seconds: f64,
    /// Seconds since the attempt began.
    pub wall_seconds: f64,
    /// Device bytes held now.
    pub gpu_bytes: u64,
    /// The most device bytes held at once.
    pub gpu_bytes_peak: u64,
    /// Samples trained on.
    pub samples: u64,
    /// Kernels run.
    pub dispatches: u64,
    /// Submissions to the device.
    pub submissions: u64,
    /// Seconds of taking items of datasets to the device.
    #[serde(default)]
    pub data_seconds: f64,
    /// Seconds of taking means over worker processes, waiting for the slowest included.
    #[serde(default)]
    pub all_reduce_seconds: f64,
    /// Seconds of saving checkpoints.
    #[serde(default)]
    pub checkpoint_seconds: f64,
}

/// From the worker.
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
        /// Whether device seconds come from the device's own clock.
        exact_seconds: bool,
        /// Why this device was chosen.
        choice: String,
    },
    /// Variables, positions and state were restored from a checkpoint.
    Resumed {
        /// Its step.
        step: u64,
    },
    /// A line for people.
    Log {
        /// `debug`, `info`, `warn`, `error`.
        level: String,
        /// Without its line end.
        line: String,
    },
    /// A value of one of the training's own series.
    Metric {
        /// At which step.
        step: u64,
        /// Of which series.
        name: String,
        /// JSON has no NaN: none stands for a value that is not finite.
        value: Option<f64>,
    },
    /// Steps done, of steps to do.
    Progress {
        /// Done.
        step: u64,
        /// To do.
        of: u64,
    },
    /// Resources used since the attempt began.
    Usage(WorkerUsage),
    /// A checkpoint is safe.
    Checkpoint {
        /// At which step.
        step: u64,
        /// Its size.
        bytes: u64,
        /// How long it took.
        seconds: f64,
        /// SHA-256 of its variables.
        digest: String,
    },
    /// A checkpoint could not be saved or used; the training goes on with the one before.
    CheckpointFailed {
        /// `save` or `load`.
        op: String,
        /// Why.
        reason: String,
    },
    /// Means over several worker processes were taken.
    AllReduced {
        /// How long each took, waiting for the slowest process included.
        seconds: Vec<f64>,
    },
    /// A phase of the job begins.
    Phase {
        /// Its name.
        name: String,
    },
    /// A model version exists.
    Published {
        /// The model.
        model: String,
        /// Its version.
        version: u64,
    },
    /// The worker runs.
    Alive,
    /// A publication was refused.
    PublicationRefused {
        /// The model.
        model: String,
        /// Why, and what can be done about it.
        reason: String,
    },
    /// The plugin returned.
    Finished {
        /// Whether it stopped because it was told to.
        stopped: bool,
    },
    /// The attempt failed.
    Failed {
        /// UPPER_SNAKE.
        reason: String,
        /// For people.
        message: String,
    },
}

impl WorkerEvent {
    /// What a plugin, or an error, has put into words.
    pub(crate) fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            WorkerEvent::Log { line: text, .. }
            | WorkerEvent::Metric { name: text, .. }
            | WorkerEvent::CheckpointFailed { reason: text, .. }
            | WorkerEvent::Phase { name: text }
            | WorkerEvent::Published { model: text, .. }
            | WorkerEvent::PublicationRefused { reason: text, .. }
            | WorkerEvent::Failed { message: text, .. } => Some(text),
            WorkerEvent::Started { .. }
            | WorkerEvent::Resumed { .. }
            | WorkerEvent::Progress { .. }
            | WorkerEvent::Usage(_)
            | WorkerEvent::Checkpoint { .. }
            | WorkerEvent::AllReduced { .. }
            | WorkerEvent::Alive
            | WorkerEvent::Finished { .. } => None,
        }
    }
}
