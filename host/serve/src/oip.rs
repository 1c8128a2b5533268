//! The Open Inference Protocol, version 2, over HTTP (`/v2`) and over gRPC ([`grpc`]), with Triton's extensions for binary tensors, the model
//! repository, statistics and configuration.
//!
//! In a model's metadata, -1 as the first dimension means a batch; shapes of models without batches do not have it. A
//! text is one `BYTES` element. Half floats are exchanged as binary data only. Booleans are declared as `UINT8`, the
//! type that plugins use.

mod binary;
mod datatype;
mod error;
pub(crate) mod grpc;
mod infer;
mod metadata;
mod model_config;
mod operations;
mod parameter;
pub(crate) mod protocol;
mod repository;
mod request;
mod request_parser;
mod response;
mod statistics;
mod tensor_data;

use std::sync::Arc;
use std::time::Instant;

use saggar_plugin::ModelSignature;
use saggar_serving::limits::DEADLINE_DEFAULT;
use saggar_serving::{
    LiveVersion, ModelReference, PredictionDeadline, PredictionInputs, ServingError, VersionSelector,
};

use crate::app::AppState;
use crate::error::ApiError;

pub use error::InferError;

/// Decodes the body of an inference request that is all JSON.
///
/// # Errors
/// Returns why the body is no request to the model.
pub fn decode_infer_body(signature: &ModelSignature, body: &[u8]) -> Result<PredictionInputs, ApiError> {
    Ok(request::read_request(signature, body, None)?.inputs)
}

/// Decodes a `ModelInferRequest` of gRPC.
///
/// # Errors
/// Returns why the message is no request to the model.
pub fn decode_infer_message(signature: &ModelSignature, message: &[u8]) -> Result<PredictionInputs, ApiError> {
    grpc::decode_message(signature, message)
}

/// Parses the model and version of a path: the version is what follows `/versions/`, a number or an alias, or what
/// follows an `@` in the model's name.
///
/// # Errors
/// Returns `Parameter` if the version is invalid.
fn parse_reference(model: &str, version: Option<&str>) -> Result<ModelReference, ApiError> {
    match version {
        Some(version) => Ok(ModelReference { model: model.to_owned(), version: VersionSelector::parse(version)? }),
        None => Ok(ModelReference::parse(model)?),
    }
}

/// Returns the version so that it can be described; loads it if it sleeps.
///
/// # Errors
/// Returns an error if the model or version does not exist or is not ready.
async fn ready_version(app: &AppState, reference: &ModelReference) -> Result<Arc<LiveVersion>, ApiError> {
    match app.models().find_live(Some(reference)) {
        Err(ServingError::NotReady { .. }) => {
            let deadline = PredictionDeadline::starting_at(Instant::now(), DEADLINE_DEFAULT);
            let lease = app.models().lease(Some(reference), deadline.until()).await?;
            Ok(Arc::clone(lease.live_version()))
        }
        found => Ok(found?),
    }
}
