//! The operations of the Open Inference Protocol.

use saggar_rest::oip::{OipIndexRequest, OipInferRequest, OipInferResponse, OipRepositoryRequest};

use crate::openapi::operation::{OpenApiOperation, ParameterType};
use crate::openapi::operation_response::SchemaSource;

/// Returns the operations.
pub(crate) fn operations() -> Vec<OpenApiOperation> {
    [version_operations(), repository_operations(), model_operations()].into_iter().flatten().collect()
}

/// Returns the operations of one version of a model.
fn version_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/v2/models/{model}/versions/{version}", "The inputs and outputs of one version")
            .with_errors(&[400, 404, 503]),
        OpenApiOperation::get("/v2/models/{model}/versions/{version}/ready", "Whether one version is ready")
            .with_errors(&[400, 404, 503]),
        OpenApiOperation::get(
            "/v2/models/{model}/versions/{version}/config",
            "The configuration of one version, in the fields of Triton's ModelConfig",
        )
        .with_errors(&[400, 404, 503]),
        OpenApiOperation::get(
            "/v2/models/{model}/versions/{version}/stats",
            "Statistics of one version since it was loaded",
        )
        .with_errors(&[400, 404, 503]),
        inference_operation("/v2/models/{model}/versions/{version}/infer", "An inference by one version"),
    ]
}

/// Returns the operations of the model repository.
fn repository_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::post("/v2/repository/index", "Every version of every model")
            .with_body::<OipIndexRequest>()
            .with_errors(&[400, 408, 413, 415]),
        OpenApiOperation::post("/v2/repository/models/{model}/load", "Loads a model and responds when it is done")
            .with_body::<OipRepositoryRequest>()
            .with_errors(&[400, 404, 408, 409, 413, 415, 422, 503]),
        OpenApiOperation::post("/v2/repository/models/{model}/unload", "Unloads a model and responds when it is done")
            .with_body::<OipRepositoryRequest>()
            .with_errors(&[400, 404, 408, 409, 413, 415, 422, 503]),
    ]
}

/// Returns the operations of the server and its models.
fn model_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/v2", "The server's name, version and protocol extensions"),
        OpenApiOperation::get("/v2/", "The server's name, version and protocol extensions"),
        OpenApiOperation::get("/v2/health/live", "Whether the process answers"),
        OpenApiOperation::get("/v2/health/ready", "Whether every model is ready"),
        OpenApiOperation::get("/v2/models/{model}", "A model's inputs and outputs").with_errors(&[400, 404, 503]),
        OpenApiOperation::get("/v2/models/{model}/ready", "Whether a model is ready").with_errors(&[400, 404, 503]),
        OpenApiOperation::get(
            "/v2/models/{model}/config",
            "A model's configuration, in the fields of Triton's ModelConfig",
        )
        .with_errors(&[400, 404, 503]),
        OpenApiOperation::get("/v2/models/{model}/stats", "Statistics of versions since they were loaded")
            .with_errors(&[400, 404, 503]),
        inference_operation("/v2/models/{model}/infer", "An inference"),
        OpenApiOperation::get("/v2/models/stats", "Statistics of all versions since they were loaded"),
    ]
}

fn inference_operation(path: &'static str, summary: &'static str) -> OpenApiOperation {
    OpenApiOperation::post(path, summary)
        .with_description("With `Inference-Header-Content-Length`, raw tensors follow the JSON.")
        .with_header("Inference-Header-Content-Length", ParameterType::Integer { min: 0 })
        .with_deadline()
        .with_body::<OipInferRequest>()
        .with_response::<OipInferResponse>(200)
        .with_content(200, "application/octet-stream", SchemaSource::Binary)
        .with_errors(&[400, 404, 408, 413, 415, 422, 429, 500, 503, 504])
}
