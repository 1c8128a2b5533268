//! What nobody read of a request's body is taken and dropped. An answer may be there before the body is, as where there is
//! no such model; a connection that is closed with bytes unread is reset, and the client loses the answer, or the next one.

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

/// The request with a body of which up to `bytes_max` are taken when it is dropped before its end. One whose client waits
/// to be told to go on stays as it is: reading would tell it.
pub(crate) fn drain_on_drop(request: Request, bytes_max: u64) -> Request {
    if request.headers().contains_key(header::EXPECT) || request.body().is_end_stream() {
        return request;
    }
    request.map(|body| Body::new(DrainOnDrop { body: Some(body), bytes_max }))
}

/// A body that may not be read to its end.
struct DrainOnDrop {
    /// None when there is no more of it.
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
        // None in a process that ends.
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
