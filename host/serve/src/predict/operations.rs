//! The operations of predictions by plain JSON, images and forms.

use std::collections::BTreeMap;

use crate::openapi::operation::OpenApiOperation;
use crate::openapi::operation_response::SchemaSource;

/// The statuses of predictions that fail.
const PREDICTION_ERRORS: &[u16] = &[400, 404, 406, 408, 413, 415, 422, 429, 500, 503, 504];
/// The statuses of errors of the host at paths that a plugin answers. Its own code can answer with others.
pub(crate) const HANDLER_ERRORS: &[u16] = &[400, 404, 405, 408, 413, 422, 429, 500, 503, 504];
/// Any media type.
pub(crate) const ANY_TYPE: &str = "*/*";

const HANDLER_SUMMARY: &str = "A request to a path that the model's plugin answers with its own code";

/// Adds what the plugin's own code can get and answer.
fn handler_operation(operation: OpenApiOperation) -> OpenApiOperation {
    operation
        .with_description("GET and POST of such a path are answered by the plugin too.")
        .with_deadline()
        .with_content(200, ANY_TYPE, SchemaSource::Binary)
        .with_errors(HANDLER_ERRORS)
}

/// Returns the operations.
pub(crate) fn operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/", "An index of this server: JSON for programs, a page for browsers"),
        OpenApiOperation::post("/", "A prediction by the default model")
            .with_deadline()
            .with_prediction_body()
            .with_prediction_response()
            .with_errors(PREDICTION_ERRORS),
        OpenApiOperation::get("/predict", "The default model: its inputs and outputs, and an example body")
            .with_errors(&[503]),
        OpenApiOperation::post("/predict", "A prediction by the default model")
            .with_deadline()
            .with_prediction_body()
            .with_prediction_response()
            .with_errors(PREDICTION_ERRORS),
        OpenApiOperation::get(
            "/models/{model}/predict",
            "A model by NAME, NAME@VERSION or NAME@ALIAS: its inputs and outputs, and an example body",
        )
        .with_errors(&[400, 404, 503]),
        OpenApiOperation::post("/models/{model}/predict", "A prediction by NAME, NAME@VERSION or NAME@ALIAS")
            .with_description(
                "Inputs by name, each an item or all a batch, or the bare value if only one input is \
                 needed. Serving models have their own paths in this document, with their inputs.",
            )
            .with_deadline()
            .with_prediction_body()
            .with_form::<BTreeMap<String, String>>()
            .with_prediction_response()
            .with_errors(PREDICTION_ERRORS),
        OpenApiOperation::get("/models/{model}/{path}", "A prediction by a path that the model declares")
            .with_description("Like POST, if the path and defaults provide every input.")
            .with_deadline()
            .with_prediction_response()
            .with_errors(PREDICTION_ERRORS),
        OpenApiOperation::post("/models/{model}/{path}", "A prediction by a path that the model declares")
            .with_description(
                "Segments of the path are inputs if the plugin declares them; the body contains the \
                 others, and can be an empty object.",
            )
            .with_deadline()
            .with_prediction_body()
            .with_form::<BTreeMap<String, String>>()
            .with_prediction_response()
            .with_errors(PREDICTION_ERRORS),
        handler_operation(OpenApiOperation::put("/models/{model}/{path}", HANDLER_SUMMARY)),
        handler_operation(OpenApiOperation::delete("/models/{model}/{path}", HANDLER_SUMMARY)),
        handler_operation(OpenApiOperation::patch("/models/{model}/{path}", HANDLER_SUMMARY)),
    ]
}
