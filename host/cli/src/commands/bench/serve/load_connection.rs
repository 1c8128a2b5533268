//! One connection to the server, on which requests are sent one after the other, and how each ended.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use serde::Serialize;
use ureq::http::HeaderMap;

use crate::client::ForeignError;
use crate::escape;

/// Maximum bytes that are kept of an answer that refuses a request.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Maximum characters of a code in a refusal.
const CODE_CHARS_MAX: usize = 40;
const GRPC_STATUS: &str = "grpc-status";

/// The names of gRPC's status codes, by code. Source: gRPC, `statuscodes.md`.
const GRPC_CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Why a request has no answer that counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum FailureCause {
    /// The server answered with an HTTP status that is no success.
    Status { status: u16, code: String },
    /// The server answered with a gRPC status other than `OK`.
    Grpc { code: String },
    /// No answer came in time.
    Timeout,
    /// No connection could be opened.
    Connect,
    /// The connection ended before the answer was complete.
    ConnectionLost,
    /// Further causes, when too many are distinguished already.
    Other,
}

impl std::fmt::Display for FailureCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FailureCause::Status { status, code } if code.is_empty() => write!(f, "status {status}"),
            FailureCause::Status { status, code } => write!(f, "status {status} {code}"),
            FailureCause::Grpc { code } => write!(f, "gRPC {code}"),
            FailureCause::Timeout => f.write_str("timeout"),
            FailureCause::Connect => f.write_str("no connection"),
            FailureCause::ConnectionLost => f.write_str("connection lost"),
            FailureCause::Other => f.write_str("other"),
        }
    }
}

impl FailureCause {
    /// Returns whether the server may be gone.
    pub(super) fn is_connection(&self) -> bool {
        matches!(self, FailureCause::Connect | FailureCause::ConnectionLost)
    }
}

/// A connection.
pub(super) enum LoadConnection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl LoadConnection {
    /// Returns whether the server has closed it.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            LoadConnection::Http1(sender) => sender.is_closed(),
            LoadConnection::Http2(sender) => sender.is_closed(),
        }
    }

    /// Sends a request, reads the whole answer, and returns its headers.
    ///
    /// # Errors
    /// Returns the cause if the connection ends or the answer is no success.
    pub(super) async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<HeaderMap, FailureCause> {
        let lost = |_: hyper::Error| FailureCause::ConnectionLost;
        let response = match self {
            LoadConnection::Http1(sender) => {
                sender.ready().await.map_err(lost)?;
                sender.send_request(request).await.map_err(lost)?
            }
            LoadConnection::Http2(sender) => {
                sender.ready().await.map_err(lost)?;
                sender.send_request(request).await.map_err(lost)?
            }
        };
        let is_grpc = matches!(self, LoadConnection::Http2(_));
        let (head, refusal, trailers) = read_answer(response).await.map_err(lost)?;
        if !head.status.is_success() {
            let said: ForeignError = serde_json::from_slice(&refusal).unwrap_or_default();
            let code = escape::escape_foreign_message(&said.code.unwrap_or_default());
            let code = code.chars().take(CODE_CHARS_MAX).collect();
            return Err(FailureCause::Status { status: head.status.as_u16(), code });
        }
        // A response without a message has its status in the headers.
        let status = trailers.as_ref().and_then(|trailers| trailers.get(GRPC_STATUS)).or(head.headers.get(GRPC_STATUS));
        match status.and_then(|status| status.to_str().ok()?.parse::<usize>().ok()) {
            _ if !is_grpc => Ok(head.headers),
            Some(0) => Ok(head.headers),
            Some(code) => {
                Err(FailureCause::Grpc { code: GRPC_CODES.get(code).copied().unwrap_or("UNKNOWN").to_owned() })
            }
            None => Err(FailureCause::Grpc { code: "without a status".to_owned() }),
        }
    }
}

/// Reads an answer to its end. Returns its head, the beginning of its body if it is no success, and its trailers.
async fn read_answer(
    response: Response<Incoming>,
) -> Result<(hyper::http::response::Parts, Vec<u8>, Option<HeaderMap>), hyper::Error> {
    let (head, mut body) = response.into_parts();
    let (mut refusal, mut trailers) = (Vec::new(), None);
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) if !head.status.is_success() => {
                let room = REFUSAL_BYTES_MAX.saturating_sub(refusal.len());
                refusal.extend_from_slice(&data[..data.len().min(room)]);
            }
            Ok(_) => {}
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok((head, refusal, trailers))
}
