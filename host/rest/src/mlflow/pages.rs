//! Documents that only MLflow's pages request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MlflowFloat, MlflowInteger};

/// A value of a metric of one of several runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowRunMetric")]
pub struct MlflowRunMetric {
    /// The metric.
    pub key: String,
    /// The value.
    pub value: MlflowFloat,
    /// The time, in ms since 1970.
    pub timestamp: MlflowInteger,
    /// The step.
    pub step: MlflowInteger,
    /// The run.
    pub run_id: String,
}

/// Values of a metric of several runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowBulkHistory")]
pub struct BulkHistoryResponse {
    /// The values, by run and step.
    pub metrics: Vec<MlflowRunMetric>,
}

/// What the server can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowServerInfo")]
pub struct ServerInfo {
    /// The kind of store.
    pub store_type: String,
    /// Always false.
    pub workspaces_enabled: bool,
    /// Always false.
    pub trace_archival_enabled: bool,
    /// Always false.
    pub multipart_uploads_enabled: bool,
    /// Always false.
    pub multipart_downloads_enabled: bool,
}

/// Datasets of runs: always empty, because datasets of jobs are tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowDatasetSummaries")]
pub struct DatasetSummaries {
    /// The datasets.
    pub dataset_summaries: Vec<String>,
}

/// Models that clients logged: always empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowLoggedModels")]
pub struct LoggedModels {
    /// The models.
    pub models: Vec<String>,
}

/// Endpoints of language models: always empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowGatewayEndpoints")]
pub struct GatewayEndpoints {
    /// The endpoints.
    pub endpoints: Vec<String>,
}

/// Versions in MLflow's registry of models: always empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowModelVersions")]
pub struct ModelVersions {
    /// The versions.
    pub model_versions: Vec<String>,
}
