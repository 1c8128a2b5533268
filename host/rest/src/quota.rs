//! `GET /api/v1/quota`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Storage by kind, and the usage and limits of jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Quota")]
pub struct QuotaDocument {
    /// The stored bytes of each kind.
    pub storage: Vec<StorageDocument>,
    /// The stored bytes together, without caches.
    pub storage_bytes: u64,
    /// The limit on stored bytes.
    pub storage_quota_bytes: Option<u64>,
    /// The usage of each project.
    pub projects: Vec<UsageDocument>,
    /// The usage of each key.
    pub keys: Vec<UsageDocument>,
}

/// The stored bytes of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "StorageUsage")]
pub struct StorageDocument {
    /// The kind, such as `datasets`.
    pub kind: String,
    /// The bytes.
    pub bytes: u64,
}

/// The usage and the limits of the jobs of a project or a key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "JobUsage")]
pub struct UsageDocument {
    /// The device seconds that its jobs used.
    pub gpu_seconds: f64,
    /// The limit on them.
    pub gpu_seconds_quota: Option<f64>,
    /// The seconds that its jobs ran.
    pub wall_seconds: f64,
    /// The number of its jobs that run.
    pub running_jobs: usize,
    /// The limit on them.
    pub max_running_jobs: Option<u32>,
    /// The project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}
