//! `/api/v1/plugins`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The uploaded plugins and the reference plugins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Plugins")]
pub struct PluginListDocument {
    /// The plugins.
    pub plugins: Vec<ListedPluginDocument>,
}

/// An uploaded plugin, or a reference plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "PluginFacts")]
pub struct PluginDocument {
    /// The SHA-256 of the component.
    pub digest: String,
    /// Whether it supports training.
    pub trains: bool,
    /// Whether it supports prediction.
    pub predicts: bool,
    /// Whether it is a step: a function from typed inputs to typed outputs.
    pub is_step: bool,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether it is a reference plugin, which the server's program contains. A job can name it instead of its digest.
    pub reference: bool,
    /// The plugin's declarations: `name`; `parameters`, each with a type, the accepted values, its `default` and a line
    /// of `help`; `data`, the fields that it reads by mount point; and the `inputs` and `outputs` of a step. Omitted if it
    /// declares nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    pub declares: Option<Value>,
}

impl PluginDocument {
    /// Returns the name that the plugin declares.
    pub fn declared_name(&self) -> Option<&str> {
        self.declares.as_ref()?.get("name")?.as_str()
    }
}

/// An uploaded plugin with the proof that it resumes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ListedPlugin")]
pub struct ListedPluginDocument {
    /// The plugin.
    #[serde(flatten)]
    pub plugin: PluginDocument,
    /// The two jobs that prove that it resumes, if it was tested.
    pub resume_test: Option<ResumeTestDocument>,
}

/// Two jobs that prove that a plugin resumes. Their names are null for clients that cannot see the project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ResumeTest")]
pub struct ResumeTestDocument {
    /// The name of the job that was not interrupted.
    pub whole: Option<String>,
    /// The name of the same job, interrupted.
    pub interrupted: Option<String>,
    /// The project of both jobs.
    pub project: Option<String>,
    /// How often the interrupted job resumed from a checkpoint.
    pub resumes: u64,
    /// When the comparison was made, in Unix milliseconds.
    pub at_ms: u64,
}

/// Compares two jobs of a plugin, one of which was interrupted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ResumeTestRequest")]
pub struct ResumeTestRequest {
    /// The name of the job that was not interrupted.
    pub whole: String,
    /// The name of the same job, interrupted.
    pub interrupted: String,
}

/// A plugin that the server fetches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FetchPluginRequest")]
pub struct FetchPluginRequest {
    /// The address of the component: `https://example.com/plugins/net.wasm`.
    pub url: String,
    /// Its SHA-256, as hexadecimal digits.
    pub sha256: String,
}
