//! `/api/v1/datasets`.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SHA256_PATTERN;

/// The datasets that the client can read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Datasets")]
pub struct DatasetListDocument {
    /// Their versions.
    pub datasets: Vec<DatasetDocument>,
}

/// A version of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Dataset")]
pub struct DatasetDocument {
    /// The dataset's name.
    pub name: String,
    /// The version.
    pub version: u64,
    /// The SHA-256 of its content.
    pub digest: String,
    /// The number of items.
    pub items: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The fields of an item.
    pub fields: Vec<DatasetFieldDocument>,
    /// The number of items of each split, by name.
    pub splits: IndexMap<String, u64>,
    /// When it was created, in Unix milliseconds.
    pub created_ms: u64,
    /// The projects that it belongs to. If the list is empty, every key can read it.
    pub projects: Vec<String>,
    /// The unfinished jobs that mount it.
    pub used_by: Vec<String>,
    /// The newest finished jobs that mounted it, newest first: at most 20, among the newest 1000 finished jobs.
    pub was_used_by: Vec<String>,
    /// Messages about the import: what was inferred, left out or replaced.
    pub notes: Vec<String>,
}

/// A field of a dataset's items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "DatasetField")]
pub struct DatasetFieldDocument {
    /// Its name.
    pub name: String,
    /// Its data type, such as `float32`.
    pub dtype: String,
    /// Its shape, without the dimension of items.
    pub shape: Vec<usize>,
    /// The names of the classes, if it is a class number.
    pub classes: Vec<String>,
}

/// Announces an upload by the digests of its chunks. `Digest` is the type of a SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DatasetAnnouncement")]
pub struct DatasetAnnouncement<Digest = String> {
    /// The dataset's name.
    pub name: String,
    /// The files.
    pub files: Vec<AnnouncedFile<Digest>>,
}

/// A file of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AnnouncedFile")]
pub struct AnnouncedFile<Digest = String> {
    /// Its path in the dataset.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// The SHA-256 of its content.
    #[schemars(regex(pattern = SHA256_PATTERN))]
    pub sha256: Digest,
    /// The SHA-256 of each of its chunks, in order.
    #[schemars(inner(regex(pattern = SHA256_PATTERN)))]
    pub chunks: Vec<Digest>,
}

/// An upload that has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "DatasetUpload")]
pub struct DatasetUploadDocument {
    /// The identifier of the upload.
    pub upload: String,
    /// The SHA-256 of each chunk that the server lacks.
    pub missing: Vec<String>,
    /// The version that already has this content. Nothing needs to be uploaded then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// Creates a version from a job's output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DatasetFromJob")]
pub struct DatasetFromJobRequest {
    /// The job's name or identifier.
    pub job: String,
    /// A folder or a file among its outputs; all of them if omitted.
    pub path: Option<String>,
}

/// A version that was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "RemovedDataset")]
pub struct RemovedDatasetDocument {
    /// The bytes that its removal freed.
    pub freed_bytes: u64,
}
