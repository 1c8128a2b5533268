//! The errors of protocols, which give their own codes and hints. The statuses have names here, so that no protocol
//! names a number.

use axum::http::StatusCode;
use saggar_rest::errors::ErrorCode;
use saggar_serving::PredictionOutcome;

use super::ErrorMapping;

/// An error of a protocol.
pub trait ProtocolError: std::error::Error + Send + Sync + 'static {
    /// Returns how the error is answered.
    fn mapping(&self) -> ErrorMapping;

    /// Returns the outcome that its prediction is counted under.
    fn outcome(&self) -> PredictionOutcome {
        PredictionOutcome::Rejected
    }
}

impl ErrorMapping {
    /// Returns status 400: the request is malformed.
    pub(crate) fn bad_request(code: ErrorCode, hint: &str) -> ErrorMapping {
        ErrorMapping::new(StatusCode::BAD_REQUEST, code, hint)
    }

    /// Returns status 404: the object does not exist.
    pub(crate) fn not_found(code: ErrorCode, hint: &str) -> ErrorMapping {
        ErrorMapping::new(StatusCode::NOT_FOUND, code, hint)
    }

    /// Returns status 406: the response cannot have the format that the client accepts.
    pub(crate) fn not_acceptable(hint: &str) -> ErrorMapping {
        ErrorMapping::new(StatusCode::NOT_ACCEPTABLE, ErrorCode::NotAcceptable, hint)
    }

    /// Returns status 409: the state of the object does not allow it.
    pub(crate) fn conflict(hint: &str) -> ErrorMapping {
        ErrorMapping::new(StatusCode::CONFLICT, ErrorCode::Conflict, hint)
    }

    /// Returns status 413: the body is too large.
    pub(crate) fn too_large(hint: &str) -> ErrorMapping {
        ErrorMapping::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge, hint)
    }

    /// Returns status 415: the media type is not supported.
    pub(crate) fn unsupported_media_type(hint: &str) -> ErrorMapping {
        ErrorMapping::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorCode::UnsupportedMediaType, hint)
    }

    /// Returns status 422: the request is well-formed and refused.
    pub(crate) fn unprocessable(code: ErrorCode, hint: &str) -> ErrorMapping {
        ErrorMapping::new(StatusCode::UNPROCESSABLE_ENTITY, code, hint)
    }

    /// Returns status 429: the client can try again later.
    pub(crate) fn too_many_requests(code: ErrorCode, hint: &str) -> ErrorMapping {
        ErrorMapping::new(StatusCode::TOO_MANY_REQUESTS, code, hint)
    }

    /// Returns status 500: the server or a plugin is at fault.
    pub(crate) fn server_error(code: ErrorCode, hint: &str) -> ErrorMapping {
        ErrorMapping::new(StatusCode::INTERNAL_SERVER_ERROR, code, hint)
    }

    fn new(status: StatusCode, code: ErrorCode, hint: &str) -> ErrorMapping {
        ErrorMapping { status, code, hint: hint.to_owned() }
    }
}
