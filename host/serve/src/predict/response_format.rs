//! The format in which a client wants the response to a prediction.

use axum::http::{HeaderMap, header};

/// Returns whether the client prefers server-sent events.
pub(crate) fn wants_events(headers: &HeaderMap) -> bool {
    ResponseFormat::from_accept(headers) == ResponseFormat::Events
}

/// The response format that the client prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseFormat {
    Json,
    /// Server-sent events with chunks of the outputs as they are computed.
    Events,
    /// A PNG, if the model outputs images.
    Png,
}

impl ResponseFormat {
    /// Returns the first accepted type that is supported, else JSON.
    pub(super) fn from_accept(headers: &HeaderMap) -> ResponseFormat {
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let kind = |range: &str| match range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str()
        {
            "text/event-stream" => Some(ResponseFormat::Events),
            "image/png" | "image/*" => Some(ResponseFormat::Png),
            "application/json" => Some(ResponseFormat::Json),
            _ => None,
        };
        accept.split(',').find_map(kind).unwrap_or(ResponseFormat::Json)
    }
}
