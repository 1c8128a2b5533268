//! Answers with content that is part of this binary, which clients revalidate by its fingerprint.

use axum::http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};

use crate::error;

/// A text with its media type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StaticContent {
    pub(crate) media_type: &'static str,
    /// Changes if the text changes; hexadecimal.
    pub(crate) fingerprint: &'static str,
    pub(crate) text: &'static str,
}

/// Returns the text, or `304 Not Modified` if the request's `If-None-Match` names its fingerprint.
pub(crate) fn cacheable_response(request: &HeaderMap, content: StaticContent) -> Response {
    let tag = format!("\"{}\"", content.fingerprint);
    let known = request.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).unwrap_or_default();
    let is_known = known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag);
    let mut response = if is_known { error::not_modified() } else { content.text.into_response() };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content.media_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(ETAG, HeaderValue::from_str(&tag).expect("a digest is plain text"));
    response
}
