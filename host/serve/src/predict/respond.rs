//! The response to a prediction over HTTP: the encoded outputs with the headers that name the version, the timings and
//! the warnings.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use saggar_serving::{CompletedPrediction, LiveVersion, RequestTimings};

use crate::error::ApiError;
use crate::request_memory::ResponseCharge;

/// The response header with a warning about how the inputs were decoded. There can be several.
const WARNING_HEADER: &str = "x-saggar-warning";

/// Encodes the result of a prediction into a response.
///
/// # Errors
/// Returns the errors of `encode`.
pub(crate) fn respond<B: Into<Body>, E: Into<ApiError>>(
    mut answer: CompletedPrediction,
    content_type: &'static str,
    encode: impl FnOnce(&CompletedPrediction) -> Result<B, E>,
) -> Result<Response, ApiError> {
    let body: Body = answer.encode(|answer| encode(answer).map_err(Into::into))?.into();
    let charge = answer.take_response_charge(body.size_hint().exact());
    let mut response = Response::new(body);
    response.extensions_mut().insert(ResponseCharge::new(charge));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    add_answer_headers(&answer, response.headers_mut());
    Ok(response)
}

/// Adds the headers that name the version, the timings and the warnings.
pub(crate) fn add_answer_headers(answer: &CompletedPrediction, headers: &mut HeaderMap) {
    add_version_headers(answer.live_version(), headers);
    if let Ok(timing) = HeaderValue::from_str(&server_timing(answer.phase_timings())) {
        headers.insert("server-timing", timing);
    }
    add_warnings(&answer.warnings, headers);
    if let Some(hit) = answer.cached {
        headers.insert("x-saggar-cache", HeaderValue::from_static(if hit { "hit" } else { "miss" }));
    }
}

/// Adds the headers that name a version.
pub(super) fn add_version_headers(version: &LiveVersion, headers: &mut HeaderMap) {
    // Names of models and devices are plain text. A device name that is not is omitted.
    let value = |text: &str| HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""));
    headers.insert("x-saggar-model", value(&format!("{}@{}", version.model, version.version)));
    headers.insert("x-saggar-plugin", value(&format!("sha256:{}", version.origin.plugin)));
    headers.insert("x-saggar-digest", value(&format!("sha256:{}", version.origin.weights)));
    headers.insert("x-saggar-device", value(&version.device));
}

/// Adds the warnings about how the inputs were decoded to the headers.
pub(super) fn add_warnings(warnings: &[String], headers: &mut HeaderMap) {
    for value in warnings.iter().filter_map(|warning| HeaderValue::from_bytes(warning.as_bytes()).ok()) {
        headers.append(WARNING_HEADER, value);
    }
}

/// Returns the value of the header `Server-Timing`, in milliseconds. Source: W3C Server Timing.
fn server_timing(timings: RequestTimings) -> String {
    let RequestTimings { read, decode, queue, compute, encode, total } = timings;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let [read, decode, queue, compute, encode, total] = [read, decode, queue, compute, encode, total].map(ms);
    format!(
        "read;dur={read:.3}, decode;dur={decode:.3}, queue;dur={queue:.3}, compute;dur={compute:.3}, \
         encode;dur={encode:.3}, total;dur={total:.3}"
    )
}
