//! Reads and drops the unread rest of a request's body. A response can be sent before the body has arrived, for example
//! if the model does not exist. Closing a connection with unread bytes resets it, and the client loses that response or
//! the next one.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header;
use bytes::Bytes;
use futures::StreamExt;
use hyper::body::{Frame, SizeHint};
use tokio::time::timeout;

use crate::limits::REFUSED_TIME_MAX;

/// Wraps the request's body so that up to `bytes_max` of it are read if it is dropped before its end. A request with
/// `Expect: 100-continue` is left as it is, because reading would make the client send its body.
pub(crate) fn drain_on_drop(request: Request, bytes_max: u64) -> Request {
    if request.headers().contains_key(header::EXPECT) || request.body().is_end_stream() {
        return request;
    }
    request.map(|body| Body::new(DrainOnDrop { body: Some(body), bytes_max }))
}

/// A body whose rest is read when it is dropped.
struct DrainOnDrop {
    /// `None` after the end of the body.
    body: Option<Body>,
    bytes_max: u64,
}

impl HttpBody for DrainOnDrop {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for DrainOnDrop {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        // There is no runtime while the process exits.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(timeout(REFUSED_TIME_MAX, drain_body(body, self.bytes_max)));
        }
    }
}

async fn drain_body(body: Body, bytes_max: u64) {
    let mut stream = body.into_data_stream();
    let mut bytes = 0;
    while let Some(Ok(piece)) = stream.next().await {
        bytes += piece.len() as u64;
        if bytes > bytes_max {
            break;
        }
    }
}
