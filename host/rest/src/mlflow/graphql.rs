//! The GraphQL queries of MLflow's pages, and their answers. Times are texts, as MLflow's type `LongString` is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MlflowPair, MlflowRunData};

/// A query. Its name decides what is answered; its text is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "MlflowQuery")]
pub struct GraphqlRequest {
    /// The name: `GetRun` or `MlflowGetExperimentQuery`.
    pub operation_name: String,
    /// Its variables.
    pub variables: GraphqlVariables,
}

/// The variables of a query, in one of two members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowQueryVariables")]
pub struct GraphqlVariables {
    /// The input of a query for a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<GraphqlInput>,
    /// The input of a query for an experiment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<GraphqlInput>,
}

/// The input of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "MlflowQueryInput")]
pub struct GraphqlInput {
    /// The run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The experiment's identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment_id: Option<String>,
}

/// The answer to a query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "MlflowQueryAnswer")]
pub struct GraphqlResponse {
    /// The answer.
    pub data: GraphqlData,
}

/// The answer by the query's field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "MlflowQueryData")]
pub struct GraphqlData {
    /// The answer to `GetRun`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mlflow_get_run: Option<GraphqlRunAnswer>,
    /// The answer to `MlflowGetExperimentQuery`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mlflow_get_experiment: Option<GraphqlExperimentAnswer>,
}

/// A run, or why it cannot be shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "MlflowQueriedRun")]
pub struct GraphqlRunAnswer {
    /// The run.
    pub run: Option<GraphqlRun>,
    /// The error.
    pub api_error: Option<GraphqlApiError>,
}

/// An experiment, or why it cannot be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "MlflowQueriedExperiment")]
pub struct GraphqlExperimentAnswer {
    /// The experiment.
    pub experiment: Option<GraphqlExperiment>,
    /// The error.
    pub api_error: Option<GraphqlApiError>,
}

/// An error as part of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "MlflowQueryError")]
pub struct GraphqlApiError {
    /// MLflow's code.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// Always null.
    pub help_url: Option<String>,
}

/// An experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "MlflowExperimentNode")]
pub struct GraphqlExperiment {
    /// The identifier.
    pub experiment_id: String,
    /// The name.
    pub name: String,
    /// Its tags.
    pub tags: Vec<MlflowPair>,
    /// The address of its artefacts.
    pub artifact_location: String,
    /// Always `active`.
    pub lifecycle_stage: String,
    /// When it was created, in ms since 1970.
    pub creation_time: String,
    /// When it was last changed, in ms since 1970.
    pub last_update_time: String,
    /// Always null.
    pub effective_trace_archival_retention: Option<String>,
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "MlflowRunNode")]
pub struct GraphqlRun {
    /// What is known of it besides its data.
    pub info: GraphqlRunInfo,
    /// Its experiment.
    pub experiment: GraphqlExperiment,
    /// Always empty.
    pub model_versions: Vec<String>,
    /// Its data.
    pub data: MlflowRunData,
    /// Always empty.
    pub inputs: GraphqlRunInputs,
    /// Always empty.
    pub outputs: GraphqlRunOutputs,
}

/// What is known of a run besides its data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "MlflowRunInfoNode")]
pub struct GraphqlRunInfo {
    /// The name.
    pub run_name: String,
    /// `RUNNING`, `SCHEDULED`, `FINISHED`, `FAILED` or `KILLED`.
    pub status: String,
    /// The identifier.
    pub run_uuid: String,
    /// The experiment's identifier.
    pub experiment_id: String,
    /// The address of its artefacts.
    pub artifact_uri: String,
    /// When it ended, in ms since 1970.
    pub end_time: Option<String>,
    /// `active` or `deleted`.
    pub lifecycle_stage: String,
    /// When it began, in ms since 1970.
    pub start_time: String,
    /// Who created it.
    pub user_id: String,
}

/// The inputs of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "MlflowRunInputs")]
pub struct GraphqlRunInputs {
    /// Always empty: datasets of jobs are tags.
    pub dataset_inputs: Vec<String>,
    /// Always empty.
    pub model_inputs: Vec<String>,
}

/// The outputs of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "MlflowRunOutputs")]
pub struct GraphqlRunOutputs {
    /// Always empty.
    pub model_outputs: Vec<String>,
}
