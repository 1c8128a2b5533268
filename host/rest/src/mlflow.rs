//! The documents of MLflow's REST interface, below `/api/2.0/mlflow`.
//!
//! Names and types are MLflow's. Numbers follow the JSON form of protocol buffers: 64-bit integers are numbers or texts,
//! and floats that JSON does not have are `NaN`, `Infinity` and `-Infinity`. Requests are read leniently, because clients
//! of many versions send members that have no meaning here.

pub mod graphql;
mod number;
mod pages;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use number::{MlflowFloat, MlflowInteger};
pub use pages::{
    BulkHistoryResponse, DatasetSummaries, GatewayEndpoints, LoggedModels, MlflowRunMetric, ModelVersions, ServerInfo,
};

/// A pair of a name and a text: a tag or a parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowPair")]
pub struct MlflowPair {
    /// The name.
    pub key: String,
    /// The text.
    pub value: String,
}

/// A value of a metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowMetric")]
pub struct MlflowMetric {
    /// The metric.
    pub key: String,
    /// The value.
    pub value: MlflowFloat,
    /// The time, in ms since 1970.
    pub timestamp: MlflowInteger,
    /// The step.
    pub step: MlflowInteger,
}

/// An experiment: a project, or one that a client created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowExperiment")]
pub struct MlflowExperiment {
    /// The identifier, which follows from the name.
    pub experiment_id: String,
    /// The name.
    pub name: String,
    /// The address of its artefacts.
    pub artifact_location: String,
    /// Always `active`.
    pub lifecycle_stage: String,
    /// When it was last changed, in ms since 1970.
    pub last_update_time: u64,
    /// When it was created, in ms since 1970.
    pub creation_time: u64,
    /// Its tags.
    pub tags: Vec<MlflowPair>,
}

/// The answer with an experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowExperimentResponse")]
pub struct MlflowExperimentResponse {
    /// The experiment.
    pub experiment: MlflowExperiment,
}

/// A search for experiments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "SearchMlflowExperiments")]
pub struct SearchExperimentsRequest {
    /// The maximum number of experiments; 1000 if omitted.
    pub max_results: Option<MlflowInteger>,
    /// The token of the next page.
    pub page_token: Option<String>,
    /// A filter: `name LIKE 'digits%'`.
    pub filter: Option<String>,
    /// The order: `name DESC`.
    pub order_by: Vec<String>,
    /// `ACTIVE_ONLY`, `DELETED_ONLY` or `ALL`.
    pub view_type: Option<String>,
}

/// Experiments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowExperiments")]
pub struct SearchExperimentsResponse {
    /// The experiments.
    pub experiments: Vec<MlflowExperiment>,
    /// The token of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// An experiment to create.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "CreateMlflowExperiment")]
pub struct CreateExperimentRequest {
    /// The name.
    pub name: String,
}

/// The identifier of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowExperimentId")]
pub struct CreateExperimentResponse {
    /// The identifier.
    pub experiment_id: String,
}

/// What is known of a run besides its data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowRunInfo")]
pub struct MlflowRunInfo {
    /// The identifier: a job's name, or 32 hexadecimal digits of an external run.
    pub run_id: String,
    /// The same, for old clients.
    pub run_uuid: String,
    /// The name.
    pub run_name: String,
    /// The experiment's identifier.
    pub experiment_id: String,
    /// Who created it.
    pub user_id: String,
    /// `RUNNING`, `SCHEDULED`, `FINISHED`, `FAILED` or `KILLED`.
    pub status: String,
    /// When it began, in ms since 1970.
    pub start_time: i64,
    /// When it ended, in ms since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<i64>,
    /// The address of its artefacts.
    pub artifact_uri: String,
    /// `active` or `deleted`.
    pub lifecycle_stage: String,
}

/// The data of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowRunData")]
pub struct MlflowRunData {
    /// The last value of each metric.
    pub metrics: Vec<MlflowMetric>,
    /// The parameters.
    pub params: Vec<MlflowPair>,
    /// The tags.
    pub tags: Vec<MlflowPair>,
}

/// A run: a job, or an external run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowRun")]
pub struct MlflowRun {
    /// What is known of it.
    pub info: MlflowRunInfo,
    /// Its data.
    pub data: MlflowRunData,
}

/// The answer with a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowRunResponse")]
pub struct MlflowRunResponse {
    /// The run.
    pub run: MlflowRun,
}

/// A search for runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "SearchMlflowRuns")]
pub struct SearchRunsRequest {
    /// The identifiers of the experiments.
    pub experiment_ids: Vec<String>,
    /// A filter: `metrics.loss < 0.1 and params.lr = '0.05'`.
    pub filter: Option<String>,
    /// `ACTIVE_ONLY`, `DELETED_ONLY` or `ALL`.
    pub run_view_type: Option<String>,
    /// The maximum number of runs; 1000 if omitted.
    pub max_results: Option<MlflowInteger>,
    /// The order: `metrics.loss ASC`.
    pub order_by: Vec<String>,
    /// The token of the next page.
    pub page_token: Option<String>,
}

/// Runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowRuns")]
pub struct SearchRunsResponse {
    /// The runs.
    pub runs: Vec<MlflowRun>,
    /// The token of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// The values of a metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowHistory")]
pub struct MetricHistoryResponse {
    /// The values, by step.
    pub metrics: Vec<MlflowMetric>,
    /// The token of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// An artefact: a file or a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowFile")]
pub struct MlflowFile {
    /// The path.
    pub path: String,
    /// Whether it is a folder.
    pub is_dir: bool,
    /// The size of a file in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size: Option<u64>,
}

/// The artefacts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowArtifacts")]
pub struct ArtifactListResponse {
    /// The address of the run's artefacts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_uri: Option<String>,
    /// The artefacts.
    pub files: Vec<MlflowFile>,
}

/// A search for logged models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "SearchMlflowLoggedModels")]
pub struct SearchLoggedModelsRequest {
    /// The identifiers of the experiments.
    pub experiment_ids: Vec<String>,
    /// A filter: `name = 'digits'`.
    pub filter: Option<String>,
}

/// Logged models: an empty list, because jobs publish models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowLoggedModels")]
pub struct LoggedModelListResponse {
    /// The models: an empty list.
    pub models: Vec<String>,
}

/// An external run to create.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "CreateMlflowRun")]
pub struct CreateRunRequest {
    /// The experiment's identifier.
    pub experiment_id: String,
    /// Who creates it.
    pub user_id: Option<String>,
    /// The name.
    pub run_name: Option<String>,
    /// When it began, in ms since 1970.
    pub start_time: Option<MlflowInteger>,
    /// The first tags.
    pub tags: Vec<MlflowPair>,
}

/// A change of an external run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "UpdateMlflowRun")]
pub struct UpdateRunRequest {
    /// The run.
    pub run_id: Option<String>,
    /// The same, of old clients.
    pub run_uuid: Option<String>,
    /// Another name.
    pub run_name: Option<String>,
    /// Another status.
    pub status: Option<String>,
    /// When it ended, in ms since 1970.
    pub end_time: Option<MlflowInteger>,
}

/// The run after a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "UpdatedMlflowRun")]
pub struct UpdateRunResponse {
    /// What is known of it.
    pub run_info: MlflowRunInfo,
}

/// A value of a metric to log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "LogMlflowMetric")]
pub struct LogMetricRequest {
    /// The run.
    pub run_id: Option<String>,
    /// The same, of old clients.
    pub run_uuid: Option<String>,
    /// The metric.
    pub key: String,
    /// The value.
    pub value: MlflowFloat,
    /// The time, in ms since 1970.
    pub timestamp: MlflowInteger,
    /// The step.
    pub step: MlflowInteger,
}

/// A parameter to log, or a tag to set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "LogMlflowText")]
pub struct LogTextRequest {
    /// The run.
    pub run_id: Option<String>,
    /// The same, of old clients.
    pub run_uuid: Option<String>,
    /// The name.
    pub key: String,
    /// The text.
    pub value: String,
}

/// Metrics, parameters and tags to log at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "LogMlflowBatch")]
pub struct LogBatchRequest {
    /// The run.
    pub run_id: Option<String>,
    /// Values of metrics.
    pub metrics: Vec<MlflowMetric>,
    /// Parameters.
    pub params: Vec<MlflowPair>,
    /// Tags.
    pub tags: Vec<MlflowPair>,
}

/// A run to delete or to restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowRunReference")]
pub struct RunReferenceRequest {
    /// The run.
    pub run_id: Option<String>,
}

/// An empty answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "MlflowDone")]
pub struct MlflowDone {}
