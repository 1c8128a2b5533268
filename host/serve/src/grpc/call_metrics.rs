//! Counts calls by their status, which is in the trailers of the response, and names the request in the trailers of a
//! call that failed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::HeaderValue;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use saggar_metrics::MetricsRegistry;

use super::status::GrpcCode;
use crate::request_id::REQUEST_ID_HEADER;

/// The metric label of methods that do not exist.
const UNKNOWN_METHOD: &str = "unknown";

/// Counts a call when it is dropped. A call that its client abandons counts as cancelled.
pub(crate) struct CallCount {
    metrics: Arc<MetricsRegistry>,
    method: String,
    code: Option<GrpcCode>,
}

impl CallCount {
    /// Begins a call of the method with this path. `None` is a method that does not exist.
    pub(crate) fn begin(metrics: &Arc<MetricsRegistry>, path: Option<&str>) -> CallCount {
        let method = path.map_or(UNKNOWN_METHOD, |path| path.trim_start_matches('/'));
        CallCount { metrics: Arc::clone(metrics), method: method.to_owned(), code: None }
    }

    /// Counts the call of the request with this ID when its response has ended.
    pub(crate) fn finish(mut self, response: Response, id: &str) -> Response {
        self.code = GrpcCode::from_headers(response.headers());
        // With a status in the head, the response is its head alone.
        if self.code.is_some() {
            return response;
        }
        let id = HeaderValue::from_str(id).ok();
        response.map(|body| Body::new(CountedBody { body, count: self, id }))
    }
}

impl Drop for CallCount {
    fn drop(&mut self) {
        let code = self.code.unwrap_or(GrpcCode::Cancelled).name();
        self.metrics.families.rpc_requests.with_label_values(&["grpc", &self.method, code]).inc();
    }
}

struct CountedBody {
    body: Body,
    count: CallCount,
    id: Option<HeaderValue>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
        {
            self.count.code = GrpcCode::from_headers(trailers);
            if self.count.code != Some(GrpcCode::Ok)
                && let Some(id) = self.id.take()
            {
                trailers.insert(REQUEST_ID_HEADER, id);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
