//! What a version was made from: the data and the parameters of its training, and the program that made it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a version was made from, as far as its publisher knew. It stays with the version when the job is removed, and
/// goes with it to other servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelProvenance {
    /// The dataset versions that the training read, such as `digits/1`, by mount.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// SHA-256 of the content of the datasets, by mount. Versions of before do not have it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data_sha256: BTreeMap<String, String>,
    /// The parameters of the training.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// The seed of the training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The step of the training at publication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The device of the training, such as `cpu`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// The version of the program that published it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub program: String,
}

impl ModelProvenance {
    /// Returns whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == ModelProvenance::default()
    }
}
