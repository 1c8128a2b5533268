//! Responses that are not errors and have a status other than 200, and those of probes. The type of a response states
//! its status and its document, from which [`crate::openapi`] describes it.

use std::marker::PhantomData;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::ApiError;

/// A document with status 201.
pub(crate) struct CreatedResponse<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for CreatedResponse<T> {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, Json(self.0)).into_response()
    }
}

/// A document with status 202, for an operation that continues.
pub(crate) struct AcceptedResponse<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for AcceptedResponse<T> {
    fn into_response(self) -> Response {
        (StatusCode::ACCEPTED, Json(self.0)).into_response()
    }
}

/// Returns whether a status says that the connection continues with another protocol.
pub(crate) fn is_switching_protocols(status: StatusCode) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS
}

/// An empty response with status 204.
pub(crate) struct NoContent;

impl IntoResponse for NoContent {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

/// The response of a probe: a document with status 200 if something is ready, else with status 503.
pub(crate) struct ProbeResponse<T> {
    /// Whether it is ready.
    pub(crate) ready: bool,
    /// The document.
    pub(crate) document: T,
}

impl<T: Serialize> IntoResponse for ProbeResponse<T> {
    fn into_response(self) -> Response {
        let status = if self.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, Json(self.document)).into_response()
    }
}

/// A document that is already serialized, with status 200.
pub(crate) struct SerializedJson<T> {
    text: Bytes,
    document: PhantomData<fn() -> T>,
}

impl<T: Serialize> SerializedJson<T> {
    /// Serializes a document.
    ///
    /// # Errors
    /// Returns `Internal` if it cannot be represented in JSON.
    pub(crate) fn new(document: &T) -> Result<SerializedJson<T>, ApiError> {
        let text = serde_json::to_vec(document).map_err(|error| ApiError::Internal { cause: error.to_string() })?;
        Ok(SerializedJson { text: text.into(), document: PhantomData })
    }
}

impl<T> IntoResponse for SerializedJson<T> {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.text).into_response()
    }
}

/// Returns an empty response with status 304.
pub(crate) fn not_modified() -> Response {
    StatusCode::NOT_MODIFIED.into_response()
}

/// Returns a response with the status that a plugin's handler chose.
///
/// # Errors
/// Returns `Internal` if it is not a status of HTTP.
pub(crate) fn plugin_response(status: u16, body: Body) -> Result<Response, ApiError> {
    let status = StatusCode::from_u16(status).map_err(|error| ApiError::Internal { cause: error.to_string() })?;
    let mut response = Response::new(body);
    *response.status_mut() = status;
    Ok(response)
}
