//! `/api/v1/workers`: the hosts that run jobs, and the settings of a host that joins them.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The hosts that run jobs: servers and workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Workers")]
pub struct WorkerListDocument {
    /// The hosts, by name.
    pub workers: Vec<WorkerDocument>,
}

/// A host that runs jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Worker")]
pub struct WorkerDocument {
    /// Its name.
    pub name: String,
    /// `server`, or `worker` if it only runs jobs.
    pub kind: String,
    /// `READY`, `DRAINING` if it takes no new jobs, or `LOST` if it was not seen for 25 s.
    pub state: String,
    /// Its labels, with `device` and `preemptible`.
    pub labels: BTreeMap<String, String>,
    /// Whether the machine can vanish at any time.
    pub preemptible: bool,
    /// `none`, or `preemptible-only` if only preemptible jobs run there.
    pub reserve: String,
    /// The names of its devices; null if it has not looked for them.
    pub devices: Option<Vec<String>>,
    /// The slots of its pools.
    pub slots: f64,
    /// The slots that jobs hold.
    pub used: f64,
    /// The jobs that hold them, of the projects that the client can see.
    pub jobs: Vec<String>,
    /// The version of its program.
    pub version: String,
    /// When it started, in Unix milliseconds.
    pub started_ms: u64,
    /// When it was last seen, in Unix milliseconds.
    pub seen_ms: u64,
    /// Seconds since then.
    pub unseen_seconds: f64,
}

/// Asks for the settings of a host that joins the server's workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkerJoin")]
pub struct WorkerJoinRequest {
    /// The name of the host, for the audit log.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// The version of its program, which must be that of the server.
    #[schemars(length(min = 1, max = 64))]
    pub version: String,
}

/// Drains a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "WorkerDrain")]
pub struct WorkerDrainRequest {
    /// Whether running jobs end first, instead of being saved and queued again.
    pub finish: bool,
}

/// The settings of a host that joins the server's workers. They contain secrets, with which all jobs can be changed.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "WorkerSettings")]
pub struct WorkerSettingsDocument {
    /// The URL of the database, with its password.
    pub database: String,
    /// The address of the store of objects; null if they are in a shared directory.
    pub objects: Option<String>,
    /// Environment variables with the settings and credentials of the store of objects.
    pub environment: BTreeMap<String, String>,
    /// The settings of jobs.
    pub jobs: WorkerJobSettings,
}

/// Does not print the secrets.
impl fmt::Debug for WorkerSettingsDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerSettingsDocument").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

/// The settings of jobs, which are the same on all hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "WorkerJobSettings")]
pub struct WorkerJobSettings {
    /// Maximum bytes of everything that is stored; null for no limit.
    pub storage_quota: Option<u64>,
    /// The prefixes of the URLs that data steps can fetch from.
    pub fetch_from: Vec<String>,
    /// Whether their names can resolve to private addresses.
    pub fetch_private: bool,
    /// Seconds without a heartbeat after which the process of an attempt is killed.
    pub worker_silence_seconds: f64,
    /// The pools by name.
    pub pools: BTreeMap<String, WorkerPoolSettings>,
    /// The queues by name.
    pub queues: BTreeMap<String, WorkerQueueSettings>,
    /// The limits of projects by name.
    pub projects: BTreeMap<String, WorkerProjectLimits>,
}

/// A pool, which each host has with its own slots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "WorkerPool")]
pub struct WorkerPoolSettings {
    /// The device of its jobs; null if each job names its own.
    pub device: Option<String>,
    /// The number of its slots.
    pub slots: f64,
    /// The labels that a host must have to offer it.
    pub labels: BTreeMap<String, String>,
    /// Whether only preemptible jobs run in it.
    pub preemptible_only: bool,
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "WorkerQueue")]
pub struct WorkerQueueSettings {
    /// The pools that its jobs run in, in order of preference.
    pub pools: Vec<String>,
    /// Whether its jobs can run in a later pool while an earlier one is full.
    pub spill: bool,
    /// The limit on its jobs that run at once, on all hosts.
    pub max_running_jobs: Option<u32>,
}

/// The limits of a project, over all hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "WorkerProjectLimits")]
pub struct WorkerProjectLimits {
    /// The limit on its jobs that run at once.
    pub max_running_jobs: Option<u32>,
    /// The limit on the device seconds of its jobs.
    pub gpu_seconds: Option<f64>,
}
