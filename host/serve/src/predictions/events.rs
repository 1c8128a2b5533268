//! A prediction as server-sent events: what has happened already, and then everything as it comes. Each event has a
//! number, so that a client that was cut off can go on where it was. Source: WHATWG HTML, server-sent events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures::stream;

use super::prediction::Prediction;
use super::run::Guard;

/// Events after the one of number `after`, up to the end. `guard` is held as long as the client reads.
pub(super) fn answer(prediction: Arc<Prediction>, after: usize, guard: Option<Guard>) -> Response {
    let events = stream::unfold((prediction, after, guard), |(prediction, at, guard)| async move {
        let event = prediction.event(at).await?;
        let (name, json) = prediction.told(&event);
        Some((Ok::<String, Infallible>(text(at + 1, name, &json)), (prediction, at + 1, guard)))
    });
    let mut response = Response::new(Body::from_stream(events));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// An event as text. JSON that was sent in several lines goes out in several, which are put together again.
fn text(id: usize, name: &str, json: &str) -> String {
    let data: String = json.split(['\n', '\r']).map(|line| format!("data: {line}\n")).collect();
    format!("id: {id}\nevent: {name}\n{data}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_marked_each() {
        assert_eq!(text(3, "start", "{\"a\":\n1}"), "id: 3\nevent: start\ndata: {\"a\":\ndata: 1}\n\n");
    }
}
