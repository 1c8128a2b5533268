//! The response of a plugin's handler as an HTTP response.

use std::convert::Infallible;
use std::io;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, stream};
use saggar_plugin::{HandlerMethod, HandlerResponse, ResponseHead};
use saggar_serving::{HandlerAnswer, HandlerStream};

use crate::error::{ApiError, plugin_response};
use crate::predict::respond::add_version_headers;
use crate::request_memory::ResponseCharge;

/// A page gets an origin without rights: its scripts cannot use this server as the user who reads it.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static("sandbox allow-forms allow-scripts");
const NO_SNIFFING: HeaderValue = HeaderValue::from_static("nosniff");
/// The type of a body for which the plugin gives none.
const UNKNOWN_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// Headers that can occur several times.
const REPEATED_HEADERS: [HeaderName; 2] = [header::LINK, header::VARY];

/// Returns the methods of a path as the value of the header `allow`.
pub(super) fn allowed_methods(methods: &[HandlerMethod]) -> String {
    let with_head = methods.iter().flat_map(|method| match method {
        HandlerMethod::Get => &["GET", "HEAD"][..],
        HandlerMethod::Post => &["POST"],
        HandlerMethod::Put => &["PUT"],
        HandlerMethod::Delete => &["DELETE"],
        HandlerMethod::Patch => &["PATCH"],
    });
    with_head.copied().collect::<Vec<_>>().join(", ")
}

/// Converts the response of a handler. The response to a `HEAD` has no body, but the length of one that is known.
///
/// # Errors
/// Returns `Internal` for a head that passed its checks and is not one of HTTP.
pub(super) fn respond(answer: HandlerAnswer, is_head: bool) -> Result<Response, ApiError> {
    let mut version_headers = HeaderMap::new();
    add_version_headers(answer.live_version(), &mut version_headers);
    let mut response = match answer {
        HandlerAnswer::Whole(HandlerResponse { head, body }, _, charge) => {
            let length = body.len();
            let has_body = length > 0;
            let sent = if is_head { Body::empty() } else { Body::from(body) };
            let mut response = head_response(&head, sent, has_body)?;
            if is_head {
                response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
            } else {
                response.extensions_mut().insert(ResponseCharge::new(charge));
            }
            response
        }
        HandlerAnswer::Streamed(head, stream) => {
            // Without its reader, the handler of a `HEAD` is cancelled. A body without a known length adds no length of 0.
            let sent = if is_head { Body::from_stream(no_pieces()) } else { stream_body(stream) };
            head_response(&head, sent, true)?
        }
    };
    response.headers_mut().extend(version_headers);
    Ok(response)
}

/// Returns a response with this head, and with the headers that the host sets.
fn head_response(head: &ResponseHead, body: Body, has_body: bool) -> Result<Response, ApiError> {
    let refused = |cause: String| ApiError::Internal { cause };
    let mut response = plugin_response(head.status(), body)?;
    let headers = response.headers_mut();
    for (name, value) in head.headers() {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| refused(error.to_string()))?;
        let value = HeaderValue::from_str(value).map_err(|error| refused(error.to_string()))?;
        if REPEATED_HEADERS.contains(&name) {
            headers.append(name, value);
        } else {
            headers.insert(name, value);
        }
    }
    if has_body {
        headers.entry(header::CONTENT_TYPE).or_insert(UNKNOWN_TYPE);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFFING);
    headers.insert(header::CONTENT_SECURITY_POLICY, PAGE_POLICY);
    Ok(response)
}

fn no_pieces() -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::empty()
}

/// Returns a body of the pieces of a stream. If the handler fails, the body ends with an error, which cuts the
/// connection, because the status cannot be changed any more.
fn stream_body(stream: HandlerStream) -> Body {
    Body::from_stream(stream::unfold(stream, |mut stream| async move {
        let piece = match stream.next_piece().await? {
            Ok(piece) => Ok(piece),
            Err(error) => {
                let (model, version) = (&stream.live_version().model, stream.live_version().version);
                tracing::warn!(model, version, %error, "a handler failed after its response had begun");
                Err(io::Error::other("the handler failed"))
            }
        };
        Some((piece, stream))
    }))
}
