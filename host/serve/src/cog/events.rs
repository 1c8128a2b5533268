//! A prediction as server-sent events: past events first, then new ones as they occur. Events are numbered, so that a
//! client can resume after a disconnect. Source: WHATWG HTML, server-sent events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures::stream;

use super::execution::CancelPredictionOnDrop;
use super::prediction::CogPrediction;

/// Streams the events after number `after` up to the end. Holds `guard` until the client stops reading.
pub(super) fn stream_events(
    prediction: Arc<CogPrediction>,
    after: usize,
    guard: Option<CancelPredictionOnDrop>,
) -> Response {
    let events = stream::unfold((prediction, after, guard), |(prediction, at, guard)| async move {
        let event = prediction.wait_for_event(at).await?;
        let (name, json) = prediction.event_payload(&event);
        Some((Ok::<String, Infallible>(format_event(at + 1, name, &json)), (prediction, at + 1, guard)))
    });
    let mut response = Response::new(Body::from_stream(events));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Formats an event. JSON with line breaks is sent as several data lines, which the client joins.
fn format_event(id: usize, name: &str, json: &str) -> String {
    let data: String = json.split(['\n', '\r']).map(|line| format!("data: {line}\n")).collect();
    format!("id: {id}\nevent: {name}\n{data}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_event_data_gets_its_own_data_field() {
        assert_eq!(format_event(3, "start", "{\"a\":\n1}"), "id: 3\nevent: start\ndata: {\"a\":\ndata: 1}\n\n");
    }
}
