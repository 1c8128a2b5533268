//! The bodies of errors for MLflow's clients, which read MLflow's members.

use axum::http::StatusCode;
use serde::Serialize;

use super::ErrorBody;

/// An error with the members of MLflow and those of every error.
#[derive(Serialize)]
struct MlflowErrorDocument<'a> {
    error_code: &'static str,
    message: String,
    error: &'a str,
    code: &'a str,
    hint: &'a str,
    request_id: &'a str,
}

/// Returns the body as JSON for the request with this identifier.
pub(crate) fn mlflow_error_json(body: &ErrorBody, status: StatusCode, request_id: &str) -> String {
    let error_code = match status {
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => "INVALID_PARAMETER_VALUE",
        StatusCode::UNAUTHORIZED => "UNAUTHENTICATED",
        StatusCode::FORBIDDEN => "PERMISSION_DENIED",
        StatusCode::NOT_FOUND => "RESOURCE_DOES_NOT_EXIST",
        StatusCode::METHOD_NOT_ALLOWED => "ENDPOINT_NOT_FOUND",
        StatusCode::CONFLICT => "RESOURCE_ALREADY_EXISTS",
        StatusCode::TOO_MANY_REQUESTS => "REQUEST_LIMIT_EXCEEDED",
        StatusCode::SERVICE_UNAVAILABLE => "TEMPORARILY_UNAVAILABLE",
        status if status.is_client_error() => "BAD_REQUEST",
        _ => "INTERNAL_ERROR",
    };
    let separator = if body.hint.is_empty() { "" } else { "; " };
    let message = format!("{}{separator}{}", body.error, body.hint);
    let (error, code, hint) = (body.error.as_str(), body.code.as_str(), body.hint.as_str());
    let document = MlflowErrorDocument { error_code, message, error, code, hint, request_id };
    serde_json::to_string(&document).expect("an error is plain data")
}
