//! `GET /api/v1/jobs/{job}/checkpoints`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The checkpoints of a job, newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Checkpoints")]
pub struct CheckpointListDocument {
    /// The checkpoints.
    pub checkpoints: Vec<CheckpointDocument>,
}

/// A checkpoint of a job. A damaged one has only `step`, `epoch`, `whole` and `reason`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Checkpoint")]
pub struct CheckpointDocument {
    /// The training step after which it was saved.
    pub step: u64,
    /// The epoch, if the training counts epochs.
    pub epoch: Option<u64>,
    /// Its size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The SHA-256 of its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// When it was written, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_ms: Option<u64>,
    /// The last metrics before it was saved, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<BTreeMap<String, Option<f64>>>,
    /// Whether it is the best one by the metric of `checkpoint_keep_best`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<bool>,
    /// Whether all of its bytes are intact. Only with `verify`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole: Option<bool>,
    /// Why it is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
