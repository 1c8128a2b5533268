//! Responses that are not errors and have a status other than 200, and the response of a failing probe.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Returns a response with status 201.
pub(crate) fn created(body: impl Serialize) -> Response {
    (StatusCode::CREATED, axum::Json(body)).into_response()
}

/// Returns a response with status 202, for an operation that continues.
pub(crate) fn accepted(json: String) -> Response {
    let mut response = json_text(json);
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Returns a response of serialized JSON.
pub(crate) fn json_text(json: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

/// Returns an empty response with status 204.
pub(crate) fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Returns an empty response with status 304.
pub(crate) fn not_modified() -> Response {
    StatusCode::NOT_MODIFIED.into_response()
}

/// Returns a response with status 503, for a probe while something is not ready.
pub(crate) fn not_ready(body: impl Serialize) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, axum::Json(body)).into_response()
}
