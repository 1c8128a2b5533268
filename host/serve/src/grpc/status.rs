//! The status of a call: gRPC's codes, the code of each error, and the headers that carry them.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use saggar_rest::errors::ErrorCode;

use crate::error::ErrorBody;
use crate::limits::GRPC_MESSAGE_TEXT_BYTES_MAX;

/// The header or trailer with the code.
pub(super) const STATUS_HEADER: HeaderName = HeaderName::from_static("grpc-status");
/// The header or trailer with the text.
const MESSAGE_HEADER: HeaderName = HeaderName::from_static("grpc-message");

/// The header with the encodings of messages that are understood.
const ACCEPT_ENCODING_HEADER: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const ACCEPTED_ENCODINGS: HeaderValue = HeaderValue::from_static("identity, deflate, gzip");

/// The content type of responses.
pub(super) const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// The codes in use. Source: gRPC, `statuscodes.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcCode {
    Ok = 0,
    Cancelled = 1,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl GrpcCode {
    /// Every code in use.
    const ALL: [GrpcCode; 13] = [
        GrpcCode::Ok,
        GrpcCode::Cancelled,
        GrpcCode::InvalidArgument,
        GrpcCode::DeadlineExceeded,
        GrpcCode::NotFound,
        GrpcCode::AlreadyExists,
        GrpcCode::PermissionDenied,
        GrpcCode::ResourceExhausted,
        GrpcCode::FailedPrecondition,
        GrpcCode::Unimplemented,
        GrpcCode::Internal,
        GrpcCode::Unavailable,
        GrpcCode::Unauthenticated,
    ];

    /// Returns the code's name, as a metric label.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            GrpcCode::Ok => "OK",
            GrpcCode::Cancelled => "CANCELLED",
            GrpcCode::InvalidArgument => "INVALID_ARGUMENT",
            GrpcCode::DeadlineExceeded => "DEADLINE_EXCEEDED",
            GrpcCode::NotFound => "NOT_FOUND",
            GrpcCode::AlreadyExists => "ALREADY_EXISTS",
            GrpcCode::PermissionDenied => "PERMISSION_DENIED",
            GrpcCode::ResourceExhausted => "RESOURCE_EXHAUSTED",
            GrpcCode::FailedPrecondition => "FAILED_PRECONDITION",
            GrpcCode::Unimplemented => "UNIMPLEMENTED",
            GrpcCode::Internal => "INTERNAL",
            GrpcCode::Unavailable => "UNAVAILABLE",
            GrpcCode::Unauthenticated => "UNAUTHENTICATED",
        }
    }

    /// Returns the code in headers or trailers, or `None` if they have none.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<GrpcCode> {
        let number: u8 = headers.get(STATUS_HEADER)?.to_str().ok()?.parse().ok()?;
        GrpcCode::ALL.into_iter().find(|code| *code as u8 == number)
    }

    /// Returns whether the server failed, and not the client. Source: OpenTelemetry, semantic conventions for gRPC.
    pub(crate) const fn is_server_fault(self) -> bool {
        matches!(
            self,
            GrpcCode::DeadlineExceeded | GrpcCode::Unimplemented | GrpcCode::Internal | GrpcCode::Unavailable
        )
    }

    /// Returns the code of an error. This is the only table of them.
    const fn from_error(code: ErrorCode) -> GrpcCode {
        match code {
            ErrorCode::BadBody
            | ErrorCode::BadDataset
            | ErrorCode::BadFile
            | ErrorCode::BadForm
            | ErrorCode::BadHost
            | ErrorCode::BadInput
            | ErrorCode::BadJson
            | ErrorCode::BadKey
            | ErrorCode::BadName
            | ErrorCode::BadParameter
            | ErrorCode::BadPlugin
            | ErrorCode::BadRequest
            | ErrorCode::BadSecret
            | ErrorCode::BadSignature
            | ErrorCode::BadSpec
            | ErrorCode::BadTransferEncoding
            | ErrorCode::HttpsOnly
            | ErrorCode::MalformedRequest
            | ErrorCode::MissingFile
            | ErrorCode::NoTrainer
            | ErrorCode::NotAcceptable
            | ErrorCode::PluginRejected
            | ErrorCode::TinyPieces
            | ErrorCode::WebhookRefused
            | ErrorCode::WrongContent => GrpcCode::InvalidArgument,
            ErrorCode::NotFound | ErrorCode::UnknownModel | ErrorCode::VersionNotServing => GrpcCode::NotFound,
            ErrorCode::KeyExists => GrpcCode::AlreadyExists,
            ErrorCode::BadState
            | ErrorCode::ChunksMissing
            | ErrorCode::Conflict
            | ErrorCode::LoadFailed
            | ErrorCode::NoImporter
            | ErrorCode::NotebooksOff
            | ErrorCode::NoWorkers
            | ErrorCode::TooMany
            | ErrorCode::VersionSkew => GrpcCode::FailedPrecondition,
            ErrorCode::BodyTimeout | ErrorCode::Deadline | ErrorCode::DeadlineQueued => GrpcCode::DeadlineExceeded,
            ErrorCode::DiskFull
            | ErrorCode::MemoryFull
            | ErrorCode::MemoryShare
            | ErrorCode::OutOfMemory
            | ErrorCode::QueueFull
            | ErrorCode::QuotaExceeded
            | ErrorCode::RateLimited
            | ErrorCode::StreamsFull
            | ErrorCode::TooLarge => GrpcCode::ResourceExhausted,
            ErrorCode::CompilerBusy
            | ErrorCode::DatabaseUnavailable
            | ErrorCode::DeviceLost
            | ErrorCode::FetchFailed
            | ErrorCode::IngestBusy
            | ErrorCode::NotReady
            | ErrorCode::Stopping
            | ErrorCode::StoreUnavailable => GrpcCode::Unavailable,
            ErrorCode::ExpiredKey | ErrorCode::NoKey | ErrorCode::UnknownKey => GrpcCode::Unauthenticated,
            ErrorCode::CrossSite
            | ErrorCode::FetchRefused
            | ErrorCode::ForeignHost
            | ErrorCode::ForeignProject
            | ErrorCode::MissingScope
            | ErrorCode::NotebookToken => GrpcCode::PermissionDenied,
            ErrorCode::MethodNotAllowed | ErrorCode::UnsupportedMediaType => GrpcCode::Unimplemented,
            ErrorCode::BadOutput | ErrorCode::Internal | ErrorCode::PluginError | ErrorCode::PluginTrap => {
                GrpcCode::Internal
            }
        }
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrpcStatus {
    pub(super) code: GrpcCode,
    /// The error and its hint; empty if the call succeeded.
    pub(super) message: String,
}

impl GrpcStatus {
    /// The status of a call that succeeded.
    pub(super) const OK: GrpcStatus = GrpcStatus { code: GrpcCode::Ok, message: String::new() };

    /// Returns the status of a stream whose deadline has passed.
    pub(crate) fn deadline_exceeded() -> GrpcStatus {
        GrpcStatus { code: GrpcCode::DeadlineExceeded, message: "the deadline of the stream has passed".to_owned() }
    }

    /// Returns the text: the error and its hint.
    pub(crate) fn into_message(self) -> String {
        self.message
    }

    /// Returns the status of an error.
    pub(crate) fn from_error(error: &ErrorBody) -> GrpcStatus {
        let separator = if error.hint.is_empty() { "" } else { "; " };
        let message = format!("{}{separator}{}", error.error, error.hint);
        GrpcStatus { code: GrpcCode::from_error(error.code), message }
    }

    /// Inserts the status into headers or trailers.
    pub(super) fn insert_into(&self, headers: &mut HeaderMap) {
        headers.insert(STATUS_HEADER, HeaderValue::from(self.code as u16));
        if let Ok(message) = HeaderValue::from_str(&percent_encode(&self.message)) {
            headers.insert(MESSAGE_HEADER, message);
        }
    }
}

/// Returns the response to a call that failed before its first message: HTTP's status is 200, and the status of the call
/// is in the headers. Other headers of `response` are retained. `is_known` is false for a method that does not exist.
pub(crate) fn error_response(response: Response, error: &ErrorBody, is_known: bool) -> Response {
    let mut status = GrpcStatus::from_error(error);
    if !is_known && status.code == GrpcCode::NotFound {
        status.code = GrpcCode::Unimplemented;
    }
    let (parts, _) = response.into_parts();
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = parts.headers;
    response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response.headers_mut().insert(ACCEPT_ENCODING_HEADER, ACCEPTED_ENCODINGS);
    status.insert_into(response.headers_mut());
    response
}

/// Returns the text in the form of the header: printable ASCII except `%`, and other bytes as `%41`. A long text is cut
/// off, because clients limit the size of headers.
fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for letter in text.chars() {
        let mut bytes = [0; 4];
        let bytes = letter.encode_utf8(&mut bytes).as_bytes();
        if encoded.len() + 3 * bytes.len() > GRPC_MESSAGE_TEXT_BYTES_MAX {
            break;
        }
        if matches!(letter, ' '..='~') && letter != '%' {
            encoded.push(letter);
        } else {
            bytes.iter().for_each(|byte| encoded.push_str(&format!("%{byte:02X}")));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded_and_cut_between_characters() {
        assert_eq!(percent_encode("no model \"x\": 100 %"), "no model \"x\": 100 %25");
        assert_eq!(percent_encode("né\n"), "n%C3%A9%0A");
        let long = percent_encode(&"é".repeat(GRPC_MESSAGE_TEXT_BYTES_MAX));
        assert!(long.len() <= GRPC_MESSAGE_TEXT_BYTES_MAX && long.len().is_multiple_of(6), "{}", long.len());
    }

    #[test]
    fn a_status_survives_its_headers() {
        for code in GrpcCode::ALL {
            let mut headers = HeaderMap::new();
            GrpcStatus { code, message: "text".to_owned() }.insert_into(&mut headers);
            assert_eq!(GrpcCode::from_headers(&headers), Some(code));
            assert_eq!(headers["grpc-message"], "text");
        }
        assert_eq!(GrpcCode::from_headers(&HeaderMap::new()), None);
    }

    #[test]
    fn errors_have_the_code_that_clients_expect() {
        let code = |code| GrpcCode::from_error(code);
        assert_eq!(code(ErrorCode::TooLarge), GrpcCode::ResourceExhausted);
        assert_eq!(code(ErrorCode::UnknownModel), GrpcCode::NotFound);
        assert_eq!(code(ErrorCode::NoKey), GrpcCode::Unauthenticated);
        assert_eq!(code(ErrorCode::MissingScope), GrpcCode::PermissionDenied);
        assert_eq!(code(ErrorCode::Deadline), GrpcCode::DeadlineExceeded);
        assert!(ErrorCode::ALL.iter().all(|it| !matches!(code(*it), GrpcCode::Ok | GrpcCode::Cancelled)));
    }
}
