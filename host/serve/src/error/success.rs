//! Answers whose status is not 200 although nothing went wrong, and that of a probe.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// The answer to a request that made something.
pub(crate) fn created(body: serde_json::Value) -> Response {
    (StatusCode::CREATED, axum::Json(body)).into_response()
}

/// The answer to a request that goes on.
pub(crate) fn accepted(json: String) -> Response {
    let mut response = json_text(json);
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// An answer of JSON that is text already.
pub(crate) fn json_text(json: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

/// The answer to a request after which there is nothing to say.
pub(crate) fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// The answer to a client that has what it asks for.
pub(crate) fn not_modified() -> Response {
    StatusCode::NOT_MODIFIED.into_response()
}

/// The answer of a probe while something is not ready.
pub(crate) fn not_ready(body: serde_json::Value) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, axum::Json(body)).into_response()
}
