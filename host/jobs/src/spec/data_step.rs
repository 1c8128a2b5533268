//! The specification of a data step: a job that makes a version of a dataset, and runs no plugin.

use saggar_project::is_valid_name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::JobSpec;
use crate::error::SpecError;

/// A version of a dataset to make. Equal content gives no second version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataStepSpec {
    /// The dataset that gets the version.
    pub dataset: String,
    /// What the version is made of.
    pub from: DataStepSource,
}

/// The source of a data step: `{"job": "prepare-3", "path": "table"}`,
/// `{"url": "https://example.com/digits.tar.gz", "sha256": "..."}`, or `{"version": 3}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DataStepSource {
    /// Files that a job wrote.
    Output(DataStepOutput),
    /// A file of another server, which is unpacked if it is an archive.
    Fetch(DataStepFetch),
    /// A version of the dataset that exists already, such as one that a client has pushed.
    Version(DataStepVersion),
}

/// A version of the dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DataStepVersion")]
pub struct DataStepVersion {
    /// Its number.
    pub version: u64,
}

/// Files that a job wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DataStepOutput")]
pub struct DataStepOutput {
    /// The job's name.
    pub job: String,
    /// A folder or file of its output; all of it if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A file of another server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DataStepFetch")]
pub struct DataStepFetch {
    /// Its address. The server must be allowed to fetch from there.
    pub url: String,
    /// Its SHA-256, as hexadecimal digits.
    pub sha256: String,
}

impl DataStepSpec {
    /// Checks everything that needs no lookup.
    ///
    /// # Errors
    /// `DataStep`; `Name`; `OutputPath`.
    pub(super) fn validate(&self, spec: &JobSpec) -> Result<(), SpecError> {
        let refuse = |reason| Err(SpecError::DataStep { reason });
        let runs_code = spec.predict.is_some() || spec.measure || !spec.plugin.is_empty();
        if runs_code || spec.init_from.is_some() || !spec.parameters.is_empty() || !spec.secrets.is_empty() {
            return refuse(
                "it runs no plugin; leave `plugin`, `parameters`, `predict`, `measure`, `init_from` and `secrets` out",
            );
        }
        if !spec.data.is_empty() || spec.replicas > 1 || spec.shards.is_some() {
            return refuse("it reads only its source, in one process; leave `data`, `replicas` and `shards` out");
        }
        if !is_valid_name(&self.dataset) {
            return Err(SpecError::Name { field: "data_step.dataset", name: self.dataset.clone() });
        }
        match &self.from {
            DataStepSource::Output(DataStepOutput { path: Some(path), .. }) if !saggar_store::is_output_path(path) => {
                Err(SpecError::OutputPath { path: path.clone() })
            }
            DataStepSource::Fetch(DataStepFetch { sha256, .. })
                if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
            {
                refuse("sha256: expected 64 hexadecimal digits")
            }
            DataStepSource::Output(_) | DataStepSource::Fetch(_) | DataStepSource::Version(_) => Ok(()),
        }
    }
}
