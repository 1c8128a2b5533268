//! The operations of sweeps.

use saggar_rest::sweeps::PublishTrialRequest;
use saggar_sweeps::SweepSpec;

use crate::openapi::operation::{OpenApiOperation, ParameterType};

/// Returns the operations.
pub(crate) fn operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/api/v1/sweeps", "Sweeps, newest first"),
        OpenApiOperation::post("/api/v1/sweeps", "Starts a sweep: a search for parameters of a training")
            .with_header("Idempotency-Key", ParameterType::Pattern("^[!-~]{1,64}$"))
            .with_body::<SweepSpec>()
            .with_errors(&[400, 403, 404, 408, 409, 413, 422]),
        OpenApiOperation::get("/api/v1/sweeps/{sweep}", "A sweep with its trials, by name or identifier")
            .with_errors(&[400, 404]),
        OpenApiOperation::post(
            "/api/v1/sweeps/{sweep}/stop",
            "Stops a sweep: its running trials save their state and pause",
        )
        .with_errors(&[400, 404, 409]),
        OpenApiOperation::post(
            "/api/v1/sweeps/{sweep}/resume",
            "Resumes a stopped sweep: its trials continue where they paused",
        )
        .with_errors(&[400, 404, 409]),
        OpenApiOperation::post(
            "/api/v1/sweeps/{sweep}/publish",
            "Makes the result of the best trial the default version of a model",
        )
        .with_description(
            "The sweep must be over. Without `model`, the model that the trial published. Refused if the version does \
             not meet the condition `promote` of the model's configuration; it is stored then and not served.",
        )
        .with_body::<PublishTrialRequest>()
        .with_errors(&[400, 404, 408, 409, 413, 503]),
    ]
}
