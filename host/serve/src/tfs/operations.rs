//! The operations of the interface of TensorFlow Serving.

use saggar_rest::tfs::{
    TfsClassifyResponse, TfsExamplesRequest, TfsMetadataDocument, TfsModelList, TfsPredictRequest, TfsPredictResponse,
    TfsRegressResponse, TfsStatusDocument,
};

use crate::openapi::operation::OpenApiOperation;

/// The statuses of predictions that fail.
const PREDICTION_ERRORS: &[u16] = &[400, 404, 408, 413, 422, 429, 500, 503, 504];

/// Returns the operations.
pub(crate) fn operations() -> Vec<OpenApiOperation> {
    [prediction_operations(), model_operations()].into_iter().flatten().collect()
}

/// Returns the operations that predict.
fn prediction_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::post(
            "/v1/models/{model}:predict",
            "A prediction by rows (`instances`) or by columns (`inputs`)",
        )
        .with_deadline()
        .with_body::<TfsPredictRequest>()
        .with_response::<TfsPredictResponse>(200)
        .with_errors(PREDICTION_ERRORS),
        OpenApiOperation::post("/v1/models/{model}:classify", "Classes with their scores for each example")
            .with_deadline()
            .with_body::<TfsExamplesRequest>()
            .with_response::<TfsClassifyResponse>(200)
            .with_errors(PREDICTION_ERRORS),
        OpenApiOperation::post("/v1/models/{model}:regress", "One number for each example")
            .with_deadline()
            .with_body::<TfsExamplesRequest>()
            .with_response::<TfsRegressResponse>(200)
            .with_errors(PREDICTION_ERRORS),
        OpenApiOperation::post(
            "/v1/models/{model}/versions/{version}:predict",
            "A prediction by rows (`instances`) or by columns (`inputs`) with one version",
        )
        .with_deadline()
        .with_body::<TfsPredictRequest>()
        .with_response::<TfsPredictResponse>(200)
        .with_errors(PREDICTION_ERRORS),
        OpenApiOperation::post(
            "/v1/models/{model}/versions/{version}:classify",
            "Classes with their scores for each example, with one version",
        )
        .with_deadline()
        .with_body::<TfsExamplesRequest>()
        .with_response::<TfsClassifyResponse>(200)
        .with_errors(PREDICTION_ERRORS),
        OpenApiOperation::post(
            "/v1/models/{model}/versions/{version}:regress",
            "One number for each example, with one version",
        )
        .with_deadline()
        .with_body::<TfsExamplesRequest>()
        .with_response::<TfsRegressResponse>(200)
        .with_errors(PREDICTION_ERRORS),
        OpenApiOperation::post(
            "/v1/models/{model}/labels/{label}:predict",
            "A prediction by rows (`instances`) or by columns (`inputs`) with the version that an \
             alias points to",
        )
        .with_deadline()
        .with_body::<TfsPredictRequest>()
        .with_response::<TfsPredictResponse>(200)
        .with_errors(PREDICTION_ERRORS),
        OpenApiOperation::post(
            "/v1/models/{model}/labels/{label}:classify",
            "Classes with their scores for each example, with the version that an alias points to",
        )
        .with_deadline()
        .with_body::<TfsExamplesRequest>()
        .with_response::<TfsClassifyResponse>(200)
        .with_errors(PREDICTION_ERRORS),
        OpenApiOperation::post(
            "/v1/models/{model}/labels/{label}:regress",
            "One number for each example, with the version that an alias points to",
        )
        .with_deadline()
        .with_body::<TfsExamplesRequest>()
        .with_response::<TfsRegressResponse>(200)
        .with_errors(PREDICTION_ERRORS),
    ]
}

/// Returns the operations that describe models.
fn model_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/v1/models", "The names of all models, as KServe V1 lists them")
            .with_response::<TfsModelList>(200),
        OpenApiOperation::get("/v1/models/{model}", "The states of all versions")
            .with_response::<TfsStatusDocument>(200)
            .with_errors(&[400, 404]),
        OpenApiOperation::get("/v1/models/{model}/metadata", "A model's inputs and outputs")
            .with_response::<TfsMetadataDocument>(200)
            .with_errors(&[400, 404, 503]),
        OpenApiOperation::get("/v1/models/{model}/versions/{version}", "The state of one version")
            .with_response::<TfsStatusDocument>(200)
            .with_errors(&[400, 404]),
        OpenApiOperation::get(
            "/v1/models/{model}/versions/{version}/metadata",
            "The inputs and outputs of one version",
        )
        .with_response::<TfsMetadataDocument>(200)
        .with_errors(&[400, 404, 503]),
        OpenApiOperation::get("/v1/models/{model}/labels/{label}", "The state of the version that an alias points to")
            .with_response::<TfsStatusDocument>(200)
            .with_errors(&[400, 404]),
        OpenApiOperation::get(
            "/v1/models/{model}/labels/{label}/metadata",
            "The inputs and outputs of the version that an alias points to",
        )
        .with_response::<TfsMetadataDocument>(200)
        .with_errors(&[400, 404, 503]),
    ]
}
