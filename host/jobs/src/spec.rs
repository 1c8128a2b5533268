//! What a job is asked to do: resolved once, at submission, and recorded with it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::SpecError;
use crate::limits::{MOUNTS_MAX, PARAMETERS_BYTES_MAX, RETRY_MAX};

/// A dataset version mounted into a job, read-only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// The dataset's name.
    pub dataset: String,
    /// Its version; the newest at submission where none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Where the plugin finds it: `/data`.
    pub mount: String,
}

/// When a checkpoint is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointEvery {
    /// After so many milliseconds, at the next step boundary.
    Milliseconds(u64),
    /// After so many steps, at the next step boundary.
    Steps(u64),
}

impl Default for CheckpointEvery {
    fn default() -> CheckpointEvery {
        CheckpointEvery::Milliseconds(30_000)
    }
}

/// A training job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// The group whose numbers the job's name counts: `digits` names jobs `digits-1`, `digits-2`, ...
    pub project: String,
    /// The task of the project file that this was started as.
    #[serde(default = "default_task")]
    pub task: String,
    /// SHA-256 of the plugin, as hexadecimal digits.
    pub plugin: String,
    /// Given to the plugin as a JSON object.
    #[serde(default)]
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Datasets.
    #[serde(default)]
    pub data: Vec<Mount>,
    /// `auto`, `cpu`, `gpu`, `vulkan:0`.
    #[serde(default = "default_device")]
    pub device: String,
    /// Where everything random comes from.
    #[serde(default)]
    pub seed: u64,
    /// When checkpoints are due.
    #[serde(default)]
    pub checkpoint_every: CheckpointEvery,
    /// Attempts beyond the first, for attempts that ended through no fault of the plugin.
    #[serde(default = "default_retry")]
    pub retry: u32,
    /// The job's running time in seconds, all attempts together, after which it is checkpointed and stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_seconds: Option<f64>,
    /// Bytes of host memory the plugin's instance may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Bytes of device memory the job may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory_bytes: Option<u64>,
    /// What the user wrote about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

fn default_task() -> String {
    "train".to_owned()
}

fn default_device() -> String {
    "auto".to_owned()
}

fn default_retry() -> u32 {
    5
}

impl JobSpec {
    /// Checks everything that can be checked without looking anything up.
    ///
    /// # Errors
    /// [`SpecError`] naming the field, what it holds and what it takes.
    pub fn validate(&self) -> Result<(), SpecError> {
        let name_ok = |name: &str| {
            (1..=63).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
                && name.as_bytes()[0].is_ascii_alphanumeric()
        };
        for (field, name) in [("project", &self.project), ("task", &self.task)] {
            if !name_ok(name) {
                return Err(SpecError::Name { field, name: name.clone() });
            }
        }
        if self.plugin.len() != 64 || !self.plugin.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(SpecError::Plugin { plugin: self.plugin.clone() });
        }
        let parameters_bytes = serde_json::to_string(&self.parameters).map_or(usize::MAX, |text| text.len());
        if parameters_bytes > PARAMETERS_BYTES_MAX {
            return Err(SpecError::Parameters { bytes: parameters_bytes });
        }
        if self.data.len() > MOUNTS_MAX {
            return Err(SpecError::Mounts { count: self.data.len() });
        }
        let mut mounts = BTreeSet::new();
        for mount in &self.data {
            if !mount.mount.starts_with('/') || mount.mount.len() < 2 {
                return Err(SpecError::MountPoint { mount: mount.mount.clone() });
            }
            if !mounts.insert(&mount.mount) {
                return Err(SpecError::MountTwice { mount: mount.mount.clone() });
            }
        }
        if self.retry > RETRY_MAX {
            return Err(SpecError::Retry { retry: self.retry });
        }
        if let CheckpointEvery::Milliseconds(0) | CheckpointEvery::Steps(0) = self.checkpoint_every {
            return Err(SpecError::CheckpointEvery);
        }
        if self.max_runtime_seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds.is_finite())) {
            return Err(SpecError::MaxRuntime);
        }
        Ok(())
    }
}
