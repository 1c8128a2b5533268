//! Error responses for requests that are not authenticated or not allowed.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use saggar_rest::errors::ErrorCode;
use saggar_store::keys::KeyError;
use saggar_store::{AccessDenied, ProjectsError};

use super::{ApiError, ErrorMapping, internal_mapping, retryable};
use crate::access::AccessError;

pub(super) fn map_access_error(error: &AccessError) -> ErrorMapping {
    let of = |status, code, hint: &str| ErrorMapping { status, code, hint: hint.to_owned() };
    let send =
        "send `Authorization: Bearer sgr_...`; `saggar key create` makes a key, and the command takes it as --key";
    match error {
        AccessError::NoKey => of(StatusCode::UNAUTHORIZED, ErrorCode::NoKey, send),
        AccessError::UnknownKey => of(StatusCode::UNAUTHORIZED, ErrorCode::UnknownKey, send),
        AccessError::ExpiredKey { .. } => of(StatusCode::UNAUTHORIZED, ErrorCode::ExpiredKey, send),
        AccessError::Scope { scope, .. } => {
            let hint = format!("make a key with `saggar key create NAME --scope {scope}`");
            of(StatusCode::FORBIDDEN, ErrorCode::MissingScope, &hint)
        }
        AccessError::Project { project, .. } => {
            let hint = format!("name one of those, or make a key with `saggar key create NAME --project {project}`");
            of(StatusCode::FORBIDDEN, ErrorCode::ForeignProject, &hint)
        }
        AccessError::Refused(error) | AccessError::Header { refused: error, .. } => map_refusal(error),
        AccessError::AllProjects { .. } => {
            let hint = "make a key with `saggar key create NAME --scope metrics:read` and no project";
            of(StatusCode::FORBIDDEN, ErrorCode::ForeignProject, hint)
        }
        AccessError::NotebookToken { job } => {
            let hint = format!("`saggar notebook {job}` prints the address with the token");
            of(StatusCode::FORBIDDEN, ErrorCode::NotebookToken, &hint)
        }
        AccessError::Rate { retry_seconds, .. } | AccessError::Quota { retry_seconds, .. } => {
            let code = if matches!(error, AccessError::Rate { .. }) {
                ErrorCode::RateLimited
            } else {
                ErrorCode::QuotaExceeded
            };
            of(StatusCode::TOO_MANY_REQUESTS, code, &format!("try again in {retry_seconds} s"))
        }
        AccessError::ForeignHost { host } => {
            let hint = format!("if a proxy of yours passes that name on, start the server with --allow-host {host}");
            of(StatusCode::FORBIDDEN, ErrorCode::ForeignHost, &hint)
        }
        AccessError::CrossSite { .. } => of(StatusCode::FORBIDDEN, ErrorCode::CrossSite, "programs send no Origin"),
        AccessError::VersionSkew { client, server } => {
            let older = if client < server { "the command" } else { "the server" };
            let hint =
                format!("minor versions may differ by one: {older} is the older one; rebuild it with `make build`");
            of(StatusCode::BAD_REQUEST, ErrorCode::VersionSkew, &hint)
        }
        AccessError::BadHost => of(StatusCode::BAD_REQUEST, ErrorCode::BadHost, ""),
        AccessError::TransferEncoding => of(StatusCode::BAD_REQUEST, ErrorCode::BadTransferEncoding, ""),
    }
}

/// Adds the headers that an access error requires.
pub(super) fn insert_access_headers(error: &AccessError, headers: &mut HeaderMap) {
    let challenge = match error {
        AccessError::NoKey => Some("Bearer realm=\"saggar\"".to_owned()),
        AccessError::UnknownKey | AccessError::ExpiredKey { .. } => {
            Some("Bearer realm=\"saggar\", error=\"invalid_token\"".to_owned())
        }
        AccessError::Scope { scope, .. } => {
            Some(format!("Bearer realm=\"saggar\", error=\"insufficient_scope\", scope=\"{scope}\""))
        }
        AccessError::Rate { retry_seconds, .. } | AccessError::Quota { retry_seconds, .. } => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(*retry_seconds));
            None
        }
        AccessError::BadHost | AccessError::TransferEncoding => {
            // Later data on this connection may be intended for another server.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            None
        }
        AccessError::Project { .. }
        | AccessError::AllProjects { .. }
        | AccessError::NotebookToken { .. }
        | AccessError::Refused(_)
        | AccessError::Header { .. }
        | AccessError::ForeignHost { .. }
        | AccessError::CrossSite { .. }
        | AccessError::VersionSkew { .. } => None,
    };
    if let Some(challenge) = challenge.and_then(|text| HeaderValue::from_str(&text).ok()) {
        headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
}

/// Maps an operation that the rights of a key do not allow.
fn map_refusal(error: &AccessDenied) -> ErrorMapping {
    let code = match error {
        AccessDenied::Scope { .. } => ErrorCode::MissingScope,
        AccessDenied::Project { .. } => ErrorCode::ForeignProject,
        AccessDenied::KeyGone { .. } => ErrorCode::UnknownKey,
        AccessDenied::Unknown { .. } => return internal_mapping(),
    };
    ErrorMapping { status: StatusCode::FORBIDDEN, code, hint: error.hint() }
}

impl From<AccessDenied> for ApiError {
    fn from(refused: AccessDenied) -> ApiError {
        ApiError::Access(refused.into())
    }
}

impl From<ProjectsError> for ApiError {
    fn from(error: ProjectsError) -> ApiError {
        let expected = "a list of at most 64 names: lower-case letters, digits and `._-`";
        match error {
            ProjectsError::Refused(refused) => refused.into(),
            ProjectsError::Store(error) => error.into(),
            ProjectsError::NotFound { name } => {
                ApiError::NotFound { kind: "thing of the name", name, hint: "it must have a version".to_owned() }
            }
            ProjectsError::BadName { name } => ApiError::Parameter { name: "projects", expected, got: name },
            ProjectsError::TooMany { count } => {
                ApiError::Parameter { name: "projects", expected, got: format!("{count} of them") }
            }
            error => ApiError::Internal { cause: error.to_string() },
        }
    }
}

pub(super) fn map_key_error(error: &KeyError) -> ErrorMapping {
    let of = |status, code, hint: &str| ErrorMapping { status, code, hint: hint.to_owned() };
    match error {
        KeyError::BadName { .. } => of(StatusCode::BAD_REQUEST, ErrorCode::BadName, ""),
        KeyError::NoScope
        | KeyError::Expired
        | KeyError::NoProject
        | KeyError::TooManyProjects { .. }
        | KeyError::BadProject { .. }
        | KeyError::AdminOfProjects { .. } => of(StatusCode::BAD_REQUEST, ErrorCode::BadKey, ""),
        KeyError::Exists { .. } | KeyError::TooMany { .. } => of(StatusCode::CONFLICT, ErrorCode::KeyExists, ""),
        KeyError::Shared(_) => retryable(ErrorCode::DatabaseUnavailable),
        KeyError::NotFound { .. } => of(StatusCode::NOT_FOUND, ErrorCode::NotFound, "GET /api/v1/keys lists them"),
        _ => internal_mapping(),
    }
}

/// Returns the complete response to a client that sends plain HTTP to a TLS port.
pub(crate) fn plain_http_on_tls_response() -> Vec<u8> {
    let status = StatusCode::BAD_REQUEST;
    let body = super::ErrorBody {
        error: "this port speaks HTTPS, and the request came as plain HTTP".to_owned(),
        code: ErrorCode::HttpsOnly,
        hint: "write https:// for http://".to_owned(),
    };
    let body = body.json("");
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}
