//! The operations of the predictions interface.

use saggar_rest::predictions::PredictionRequest;

use crate::openapi::operation::{OpenApiOperation, ParameterType};

/// Returns the operations.
pub(crate) fn operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::post(
            "/predictions",
            "Creates a prediction that can be polled, waited for, streamed and canceled",
        )
        .with_description(
            "Responds at the end; with `Prefer: respond-async` at once, with `Prefer: \
                 wait=SECONDS` after that time at the latest; with `Accept: text/event-stream` as \
                 events start, output, metric and completed.",
        )
        .with_header("Prefer", ParameterType::Text)
        .with_deadline()
        .with_body::<PredictionRequest>()
        .with_errors(&[400, 404, 408, 409, 413, 415, 422, 429, 503]),
        OpenApiOperation::get("/predictions/{id}", "The state of a prediction")
            .with_description(
                "Responds at once, with `Prefer: wait=SECONDS` at its end, or as events; \
                 `Last-Event-ID` resumes after the event that was read last. A prediction is visible \
                 only to the key that created it.",
            )
            .with_header("Prefer", ParameterType::Text)
            .with_header("Last-Event-ID", ParameterType::Integer { min: 0 })
            .with_errors(&[400, 404]),
        OpenApiOperation::put(
            "/predictions/{id}",
            "Creates a prediction under an identifier of the client; repeated requests create it \
             only once",
        )
        .with_header("Prefer", ParameterType::Text)
        .with_deadline()
        .with_body::<PredictionRequest>()
        .with_errors(&[400, 404, 408, 409, 413, 415, 422, 429, 503]),
        OpenApiOperation::post("/predictions/{id}/cancel", "Cancels a prediction; a finished one is not changed")
            .with_description("A prediction is visible only to the key that created it.")
            .with_errors(&[400, 404]),
    ]
}
