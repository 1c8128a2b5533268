//! `GET /api/v1/queues`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The queues, and the pools with the jobs that hold their slots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Queues")]
pub struct QueueListDocument {
    /// The queues.
    pub queues: Vec<QueueDocument>,
    /// The pools.
    pub pools: Vec<PoolDocument>,
}

/// A queue of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Queue")]
pub struct QueueDocument {
    /// Its name.
    pub name: String,
    /// The pools that its jobs run in, in order of preference.
    pub pools: Vec<String>,
    /// Whether its jobs can run in a later pool while an earlier one is full.
    pub spill: bool,
    /// The limit on its jobs that run at once.
    pub max_running_jobs: Option<u32>,
    /// The number of its jobs that run.
    pub running: usize,
    /// The number of its jobs that wait.
    pub waiting: usize,
}

/// A pool of slots for jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Pool")]
pub struct PoolDocument {
    /// Its name.
    pub name: String,
    /// The device of its jobs; null if each job names its own.
    pub device: Option<String>,
    /// The number of its slots.
    pub slots: f64,
    /// The slots that jobs hold.
    pub used: f64,
    /// The jobs that hold them, of the projects that the client can see.
    pub jobs: Vec<String>,
}
