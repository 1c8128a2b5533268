//! WebSockets of a notebook: after the handshake, bytes are copied in both directions and not interpreted.

use std::pin::Pin;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use crate::error::is_switching_protocols;

/// A tunnel, which ends when one of its sides does.
pub(crate) type TunnelFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns whether a request begins a WebSocket (RFC 6455, 4.1).
pub(super) fn is_requested(headers: &HeaderMap) -> bool {
    let has = |name: header::HeaderName, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|found| found.trim().eq_ignore_ascii_case(word))
    };
    has(header::CONNECTION, "upgrade") && has(header::UPGRADE, "websocket")
}

/// Returns whether the notebook accepts the WebSocket.
pub(super) fn is_accepted(response: &hyper::Response<Incoming>) -> bool {
    is_switching_protocols(response.status())
}

/// Returns the response to the client, and the tunnel between the client and the notebook.
pub(super) fn tunnel(client: OnUpgrade, mut accepted: hyper::Response<Incoming>) -> (Response, TunnelFuture) {
    let notebook = hyper::upgrade::on(&mut accepted);
    let (parts, _) = accepted.into_parts();
    let response = Response::from_parts(parts, Body::empty());
    let tunnel = async move {
        let copied = async {
            let (client, notebook) = tokio::try_join!(client, notebook).map_err(std::io::Error::other)?;
            copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(notebook)).await
        };
        if let Err(error) = copied.await {
            // A browser that is closed is no failure.
            tracing::debug!(%error, "a WebSocket of a notebook ended");
        }
    };
    (response, Box::pin(tunnel))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_websockets_are_upgraded() {
        let is = |connection: &'static str, upgrade: &'static str| {
            let headers = [(header::CONNECTION, connection), (header::UPGRADE, upgrade)];
            is_requested(&headers.map(|(name, value)| (name, HeaderValue::from_static(value))).into_iter().collect())
        };
        assert!(is("Upgrade", "websocket") && is("keep-alive, Upgrade", "WebSocket"));
        assert!(!is("keep-alive", "websocket") && !is("Upgrade", "h2c"));
    }
}
