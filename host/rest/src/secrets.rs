//! `/api/v1/secrets`. Values are accepted and never returned.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The secrets that the client can grant to jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Secrets")]
pub struct SecretListDocument {
    /// Their names.
    pub secrets: Vec<String>,
    /// The projects that each secret lists.
    pub projects: BTreeMap<String, Vec<String>>,
}

/// Stores a secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewSecret")]
pub struct SetSecretRequest {
    /// Its value.
    #[schemars(length(min = 8))]
    pub value: String,
    /// The projects whose keys can grant it to jobs. If omitted, the projects stay unchanged; with an empty list, only
    /// keys that are not limited to projects can grant it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub projects: Option<Vec<String>>,
}

/// The name of the secret that was stored or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "SecretName")]
pub struct SecretNameDocument {
    /// The name.
    pub name: String,
}
