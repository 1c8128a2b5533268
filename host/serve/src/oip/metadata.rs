//! Metadata and readiness of the server and of its models.

use axum::Json;
use axum::extract::{Path, State};
use saggar_plugin::{ModelPort, ModelSignature};
use saggar_rest::oip::{
    OipLiveDocument, OipModelDocument, OipModelReadyDocument, OipReadyDocument, OipServerDocument, OipTensorDocument,
};
use saggar_rest::server::PROGRAM_NAME;
use saggar_serving::{ModelReference, ServingError, VersionState};

use super::datatype::{OipDatatype, item_dims};
use super::request::is_batched;
use crate::api::health::unready_reasons;
use crate::app::AppState;
use crate::error::{ApiError, ProbeResponse};

/// The optional extensions of the protocol that are supported.
const EXTENSIONS: [&str; 4] = ["binary_tensor_data", "model_configuration", "model_repository", "statistics"];

/// The platform of every model, in the protocol's form `project_format`.
pub(super) const PLATFORM: &str = "saggar_wasm";

/// Handles `GET /v2`.
pub(super) async fn server_metadata() -> Json<OipServerDocument> {
    Json(OipServerDocument {
        name: PROGRAM_NAME.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: EXTENSIONS.map(str::to_owned).to_vec(),
    })
}

/// Handles `GET /v2/health/live`: liveness.
pub(super) async fn server_live() -> Json<OipLiveDocument> {
    Json(OipLiveDocument { live: true })
}

/// Handles `GET /v2/health/ready`: ready if every model is ready and the server is not stopping.
pub(super) async fn server_ready(State(app): State<AppState>) -> ProbeResponse<OipReadyDocument> {
    let ready = unready_reasons(&app).is_empty();
    ProbeResponse { ready, document: OipReadyDocument { ready } }
}

/// Handles `GET /v2/models/{model}`.
pub(super) async fn model_metadata(
    State(app): State<AppState>,
    Path(model): Path<String>,
) -> Result<Json<OipModelDocument>, ApiError> {
    describe(&app, &super::parse_reference(&model, None)?).await
}

/// Handles `GET /v2/models/{model}/versions/{version}`.
pub(super) async fn version_metadata(
    State(app): State<AppState>,
    Path((model, version)): Path<(String, String)>,
) -> Result<Json<OipModelDocument>, ApiError> {
    describe(&app, &super::parse_reference(&model, Some(&version))?).await
}

/// Handles `GET /v2/models/{model}/ready`.
pub(super) async fn model_ready(
    State(app): State<AppState>,
    Path(model): Path<String>,
) -> Result<ProbeResponse<OipModelReadyDocument>, ApiError> {
    ready_response(&app, &super::parse_reference(&model, None)?)
}

/// Handles `GET /v2/models/{model}/versions/{version}/ready`.
pub(super) async fn version_ready(
    State(app): State<AppState>,
    Path((model, version)): Path<(String, String)>,
) -> Result<ProbeResponse<OipModelReadyDocument>, ApiError> {
    ready_response(&app, &super::parse_reference(&model, Some(&version))?)
}

fn ready_response(
    app: &AppState,
    reference: &ModelReference,
) -> Result<ProbeResponse<OipModelReadyDocument>, ApiError> {
    let ready = is_ready(app, reference)?;
    Ok(ProbeResponse { ready, document: OipModelReadyDocument { name: reference.model.clone(), ready } })
}

/// Returns whether the model or version is ready. A sleeping model is ready: a request loads it.
///
/// # Errors
/// Returns an error if it does not exist.
pub(super) fn is_ready(app: &AppState, reference: &ModelReference) -> Result<bool, ApiError> {
    match app.models().check(Some(reference)) {
        Ok(_) => Ok(true),
        Err(ServingError::NotReady { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Describes a model with its inputs and outputs.
///
/// # Errors
/// Returns the errors of [`ready_version`](super::ready_version).
pub(super) async fn describe(app: &AppState, reference: &ModelReference) -> Result<Json<OipModelDocument>, ApiError> {
    let serving = super::ready_version(app, reference).await?;
    let status = app.models().status(&reference.model)?;
    let ready = status.versions.iter().filter(|version| version.state == VersionState::Ready);
    let signature = serving.predictor().signature();
    let tensors = |ports: &[ModelPort]| ports.iter().map(|port| tensor_metadata(signature, port)).collect();
    Ok(Json(OipModelDocument {
        name: serving.model.clone(),
        versions: ready.map(|version| version.version.to_string()).collect(),
        platform: PLATFORM.to_owned(),
        inputs: tensors(&signature.inputs),
        outputs: tensors(&signature.outputs),
    }))
}

fn tensor_metadata(signature: &ModelSignature, port: &ModelPort) -> OipTensorDocument {
    let batch = is_batched(signature).then_some(-1);
    let dims = item_dims(port).iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX));
    let shape: Vec<i64> = batch.into_iter().chain(dims).collect();
    let datatype = OipDatatype::from_port(port).name().to_owned();
    OipTensorDocument { name: port.name.clone(), datatype, shape }
}
