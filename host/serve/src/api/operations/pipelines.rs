//! The operations of pipelines.

use saggar_pipelines::RunRequest;
use saggar_rest::pipelines::{PipelineApprovalRequest, PipelineRestartRequest, SetPipelineScheduleRequest};

use crate::openapi::operation::{OpenApiOperation, ParameterType};

/// Returns the operations.
pub(crate) fn operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/api/v1/pipelines", "Pipelines that start at set times"),
        OpenApiOperation::post("/api/v1/pipelines", "Makes a pipeline start at the times of a cron expression")
            .with_body::<SetPipelineScheduleRequest<RunRequest>>()
            .with_errors(&[400, 403, 408, 409, 413, 422]),
        OpenApiOperation::delete("/api/v1/pipelines/{name}", "Removes the schedule of a pipeline; its runs stay")
            .with_errors(&[400, 404]),
        OpenApiOperation::post("/api/v1/pipelines/check", "Checks a pipeline without running it")
            .with_body::<RunRequest>()
            .with_errors(&[400, 403, 408, 413, 422]),
        OpenApiOperation::get("/api/v1/pipeline-runs", "Pipeline runs, newest first")
            .with_description("A key that is limited to projects sees only the runs of its projects.")
            .with_query("pipeline", ParameterType::Text)
            .with_query("state", ParameterType::Text)
            .with_query("limit", ParameterType::Integer { min: 0 })
            .with_query("cursor", ParameterType::Integer { min: 0 })
            .with_errors(&[400]),
        OpenApiOperation::post("/api/v1/pipeline-runs", "Starts a pipeline run")
            .with_header("Idempotency-Key", ParameterType::Pattern("^[!-~]{1,64}$"))
            .with_body::<RunRequest>()
            .with_errors(&[400, 403, 404, 408, 409, 413, 422, 429]),
        OpenApiOperation::get("/api/v1/pipeline-runs/{run}", "A pipeline run with its steps, by name or identifier")
            .with_errors(&[400, 404]),
        OpenApiOperation::delete("/api/v1/pipeline-runs/{run}", "Removes a pipeline run that is over; its jobs stay")
            .with_errors(&[400, 404, 409]),
        OpenApiOperation::post("/api/v1/pipeline-runs/{run}/stop", "Stops a pipeline run and its jobs")
            .with_errors(&[400, 404, 409]),
        OpenApiOperation::post("/api/v1/pipeline-runs/{run}/approve", "Approves or rejects a step that waits for it")
            .with_body::<PipelineApprovalRequest>()
            .with_errors(&[400, 404, 408, 409, 413]),
        OpenApiOperation::post(
            "/api/v1/pipeline-runs/{run}/restart",
            "Repeats the steps of a pipeline run that did not succeed, or a step and all that depend on it",
        )
        .with_body::<PipelineRestartRequest>()
        .with_errors(&[400, 404, 408, 409, 413]),
    ]
}
