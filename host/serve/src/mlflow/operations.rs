//! The operations of MLflow's interface.

use saggar_rest::mlflow::{
    CreateExperimentRequest, CreateRunRequest, LogBatchRequest, LogMetricRequest, LogTextRequest, RunReferenceRequest,
    SearchExperimentsRequest, SearchLoggedModelsRequest, SearchRunsRequest, UpdateRunRequest,
};

use crate::openapi::operation::{OpenApiOperation, ParameterType};
use crate::openapi::operation_response::SchemaSource;

const READ_ERRORS: &[u16] = &[400, 404];
const BODY_ERRORS: &[u16] = &[400, 403, 404, 408, 409, 413, 507];

/// Returns the operations.
pub(crate) fn operations() -> Vec<OpenApiOperation> {
    [read_operations(), search_operations(), write_operations()].into_iter().flatten().collect()
}

fn read_operations() -> Vec<OpenApiOperation> {
    let text = || ParameterType::Text;
    vec![
        OpenApiOperation::get("/api/2.0/mlflow/experiments/get", "An experiment")
            .with_query("experiment_id", text())
            .with_errors(READ_ERRORS),
        OpenApiOperation::get("/api/2.0/mlflow/experiments/get-by-name", "The experiment of a name")
            .with_query("experiment_name", text())
            .with_errors(READ_ERRORS),
        OpenApiOperation::get("/api/2.0/mlflow/runs/get", "A run: a job, or an external run")
            .with_query("run_id", text())
            .with_errors(READ_ERRORS),
        OpenApiOperation::get("/api/2.0/mlflow/metrics/get-history", "The values of a run's metric, by step")
            .with_query("run_id", text())
            .with_query("metric_key", text())
            .with_query("max_results", ParameterType::Integer { min: 1 })
            .with_query("page_token", text())
            .with_errors(READ_ERRORS),
        OpenApiOperation::get(
            "/api/2.0/mlflow/artifacts/list",
            "The artefacts of a run: the outputs of a job, and what it logged",
        )
        .with_query("run_id", text())
        .with_query("path", text())
        .with_errors(READ_ERRORS),
        OpenApiOperation::get("/api/2.0/mlflow-artifacts/artifacts", "The artefacts in a folder of a run")
            .with_query("path", text())
            .with_errors(READ_ERRORS),
        OpenApiOperation::get("/api/2.0/mlflow-artifacts/artifacts/{path}", "An artefact")
            .with_content(200, "application/octet-stream", SchemaSource::Binary)
            .with_errors(READ_ERRORS),
    ]
}

fn search_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/api/2.0/mlflow/experiments/search", "Experiments")
            .with_query("max_results", ParameterType::Integer { min: 1 })
            .with_query("page_token", ParameterType::Text)
            .with_query("filter", ParameterType::Text)
            .with_errors(READ_ERRORS),
        OpenApiOperation::post("/api/2.0/mlflow/experiments/search", "Experiments, filtered and ordered")
            .with_body::<SearchExperimentsRequest>()
            .with_errors(&[400, 408, 413]),
        OpenApiOperation::post("/api/2.0/mlflow/runs/search", "Runs, filtered and ordered")
            .with_body::<SearchRunsRequest>()
            .with_errors(&[400, 404, 408, 413]),
        OpenApiOperation::post("/api/2.0/mlflow/logged-models/search", "An empty list of logged models")
            .with_body::<SearchLoggedModelsRequest>()
            .with_errors(&[400, 408, 413]),
    ]
}

fn write_operations() -> Vec<OpenApiOperation> {
    let post =
        |path: &'static str, summary: &'static str| OpenApiOperation::post(path, summary).with_errors(BODY_ERRORS);
    vec![
        post("/api/2.0/mlflow/experiments/create", "Creates an experiment").with_body::<CreateExperimentRequest>(),
        post("/api/2.0/mlflow/runs/create", "Creates an external run").with_body::<CreateRunRequest>(),
        post("/api/2.0/mlflow/runs/update", "Changes an external run").with_body::<UpdateRunRequest>(),
        post("/api/2.0/mlflow/runs/delete", "Deletes an external run, which can be undone")
            .with_body::<RunReferenceRequest>(),
        post("/api/2.0/mlflow/runs/restore", "Restores a deleted external run").with_body::<RunReferenceRequest>(),
        post("/api/2.0/mlflow/runs/log-metric", "Logs a value of a metric").with_body::<LogMetricRequest>(),
        post("/api/2.0/mlflow/runs/log-parameter", "Logs a parameter").with_body::<LogTextRequest>(),
        post("/api/2.0/mlflow/runs/set-tag", "Sets a tag").with_body::<LogTextRequest>(),
        post("/api/2.0/mlflow/runs/delete-tag", "Removes a tag").with_body::<LogTextRequest>(),
        post("/api/2.0/mlflow/runs/log-batch", "Logs metrics, parameters and tags at once")
            .with_body::<LogBatchRequest>(),
    ]
}
