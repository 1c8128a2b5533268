//! Maps errors of serving models to HTTP.

use axum::http::StatusCode;
use saggar_rest::errors::ErrorCode;
use saggar_serving::{ServingError, VersionState};
use saggar_store::error::{ModelError, StoreError};

use super::{ErrorMapping, internal_mapping, retryable, status_map};

/// The hint for requests that exceed their memory.
const MEMORY_HINT: &str =
    "send fewer or smaller requests at once, or start the server with a larger --request-memory-limit";

/// Maps the error of a prediction or of a command on a model.
pub(super) fn map_serving_error(error: &ServingError) -> ErrorMapping {
    let of = |status, code, hint: &str| ErrorMapping { status, code, hint: hint.to_owned() };
    let bad = |code| of(StatusCode::BAD_REQUEST, code, "");
    match error {
        ServingError::Reference(_) | ServingError::ShadowPercent { .. } => bad(ErrorCode::BadParameter),
        ServingError::NoModel { .. } => {
            of(StatusCode::NOT_FOUND, ErrorCode::UnknownModel, "GET /api/v1/models lists them")
        }
        ServingError::NoAlias { .. } | ServingError::NoVersion { .. } => {
            of(StatusCode::NOT_FOUND, ErrorCode::NotFound, "")
        }
        ServingError::VersionNotServing { state: Some(VersionState::Loading), .. } => retryable(ErrorCode::NotReady),
        ServingError::VersionNotServing { model, version, state, .. } => {
            let mut hint = "leave the version out to get the one that serves".to_owned();
            if state.is_some() {
                hint = format!("`saggar models load {model} {version}` loads it; or {hint}");
            }
            of(StatusCode::NOT_FOUND, ErrorCode::VersionNotServing, &hint)
        }
        ServingError::NotReady { .. } | ServingError::NothingReady => retryable(ErrorCode::NotReady),
        ServingError::LoadFailed { .. } => of(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::LoadFailed, ""),
        ServingError::Conflict { .. } => of(StatusCode::CONFLICT, ErrorCode::Conflict, ""),
        ServingError::DesiredState(_) | ServingError::Config(_) => bad(ErrorCode::BadRequest),
        ServingError::QueueFull { .. } | ServingError::NoTimeLeft { .. } => {
            of(StatusCode::TOO_MANY_REQUESTS, ErrorCode::QueueFull, "try again a little later")
        }
        ServingError::DeadlineQueued { .. } => {
            of(StatusCode::REQUEST_TIMEOUT, ErrorCode::DeadlineQueued, "give it more time")
        }
        ServingError::MemoryFull => of(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::MemoryFull, MEMORY_HINT),
        ServingError::MemoryShare { .. } => of(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::MemoryShare, MEMORY_HINT),
        ServingError::Plugin(error) => status_map::map_plugin_error(error),
        ServingError::Model(error) => map_model_error(error),
        ServingError::Store(error) => map_store_error(error),
        _ => internal_mapping(),
    }
}

/// Maps an error of a model's files.
pub(super) fn map_model_error(error: &ModelError) -> ErrorMapping {
    let of = |status, code, hint: &str| ErrorMapping { status, code, hint: hint.to_owned() };
    match error {
        ModelError::NotFound { .. } => {
            of(StatusCode::NOT_FOUND, ErrorCode::NotFound, "GET /api/v1/models lists what there is")
        }
        ModelError::BadName { .. } => of(StatusCode::BAD_REQUEST, ErrorCode::BadName, ""),
        ModelError::ChangedElsewhere { .. } => of(StatusCode::CONFLICT, ErrorCode::Conflict, ""),
        _ => internal_mapping(),
    }
}

/// Maps an error of files and objects.
pub(super) fn map_store_error(error: &StoreError) -> ErrorMapping {
    match error {
        StoreError::QuotaExceeded { .. } => status_map::quota_exceeded(),
        _ => internal_mapping(),
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::super::ApiError;
    use super::*;

    #[test]
    fn a_full_queue_and_a_late_request_can_be_retried() {
        let (model, waiting) = ("digits".to_owned(), 100);
        let full = ServingError::QueueFull { model: model.clone(), waiting };
        for error in [full, ServingError::NoTimeLeft { model, waiting }] {
            let error = ApiError::from(error);
            assert_eq!((error.status(), error.code()), (StatusCode::TOO_MANY_REQUESTS, ErrorCode::QueueFull));
            let response = error.into_response();
            assert_eq!(response.headers()["retry-after"], "1");
        }
    }
}
