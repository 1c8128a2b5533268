//! `GET /api/v1/jobs/{job}/output`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The files that a job wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Outputs")]
pub struct OutputListDocument {
    /// The files.
    pub files: Vec<OutputFileDocument>,
}

/// A file that a job wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "OutputFile")]
pub struct OutputFileDocument {
    /// Its path below the job's output folder.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
}
