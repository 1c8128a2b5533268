//! The Open Inference Protocol, version 2, over HTTP: `/v2`, with Triton's extensions for binary tensors, the repository,
//! statistics and configuration.
//!
//! A model's batch is a leading -1 in its shapes; a model that knows no batches has none. A text is one `BYTES` element.
//! Half floats are exchanged as binary data only. Truth values are `UINT8`, as plugins have them.

mod answer;
mod binary;
mod configuration;
mod data;
mod datatype;
mod error;
mod infer;
mod metadata;
mod parameter;
mod reading;
mod repository;
mod request;
mod statistics;

use std::sync::Arc;
use std::time::Instant;

use axum::routing::{MethodRouter, get, post};

use crate::app::App;
use crate::error::ApiError;
use crate::limits::DEADLINE_DEFAULT;
use crate::models::Serving;
use crate::predict::call::Deadline;
use crate::predict::reference::{Reference, Which};

pub use error::InferError;

/// The routes below `/v2`.
pub(crate) fn routes() -> Vec<(&'static str, MethodRouter<App>)> {
    vec![
        ("/v2", get(metadata::server)),
        ("/v2/", get(metadata::server)),
        ("/v2/health/live", get(metadata::live)),
        ("/v2/health/ready", get(metadata::ready)),
        ("/v2/models/{model}", get(metadata::model)),
        ("/v2/models/{model}/ready", get(metadata::model_ready)),
        ("/v2/models/{model}/config", get(configuration::by_name)),
        ("/v2/models/{model}/infer", post(infer::by_name)),
        ("/v2/models/{model}/stats", get(statistics::by_name)),
        ("/v2/models/{model}/versions/{version}", get(metadata::version)),
        ("/v2/models/{model}/versions/{version}/ready", get(metadata::version_ready)),
        ("/v2/models/{model}/versions/{version}/config", get(configuration::by_version)),
        ("/v2/models/{model}/versions/{version}/infer", post(infer::by_version)),
        ("/v2/models/{model}/versions/{version}/stats", get(statistics::by_version)),
        ("/v2/models/stats", get(statistics::all)),
        ("/v2/repository/index", post(repository::index)),
        ("/v2/repository/models/{model}/load", post(repository::load)),
        ("/v2/repository/models/{model}/unload", post(repository::unload)),
    ]
}

/// What a path means: the version after `/versions/`, which may be an alias; or else what may follow the model's name
/// after an `@`.
///
/// # Errors
/// `Parameter`.
fn reference(model: &str, version: Option<&str>) -> Result<Reference, ApiError> {
    match version {
        Some(version) => Ok(Reference { model: model.to_owned(), which: Which::parse(version)? }),
        None => Reference::parse(model),
    }
}

/// The version, to say something about it. One that sleeps is woken.
///
/// # Errors
/// Where there is no such model or version, or it is not ready.
async fn version(app: &App, reference: &Reference) -> Result<Arc<Serving>, ApiError> {
    match app.models().find(Some(reference)) {
        Err(ApiError::NotReady { .. }) => {
            let deadline = Deadline::within(Instant::now(), DEADLINE_DEFAULT);
            let lease = app.models().lease(Some(reference), deadline.until()).await?;
            Ok(Arc::clone(lease.serving()))
        }
        found => found,
    }
}
