//! HTTP/1.1 and HTTP/2 over a stream that is open.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::stream::Stream;
use super::{Patience, told};
use crate::limits::{
    HEAD_BYTES_MAX, HTTP2_CONNECTION_WINDOW, HTTP2_ERRORS_MAX, HTTP2_GOODBYE_TIME_MAX, HTTP2_PING_EVERY,
    HTTP2_PING_TIME_MAX, HTTP2_RESETS_MAX, HTTP2_STREAM_WINDOW, HTTP2_STREAMS_MAX,
};

type Ended = Result<(), Box<dyn Error + Send + Sync>>;

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpVersion {
    /// HTTP/1.0 and 1.1.
    One,
    /// HTTP/2.
    Two,
}

/// Serves what the client begins to speak.
pub(super) async fn serve<S>(
    mut stream: Stream<S>,
    router: Router,
    mut stopping: watch::Receiver<bool>,
    patience: Patience,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let begun = tokio::select! {
        begun = timeout(patience.head, stream.begins_http2()) => begun??,
        // Nothing was asked yet.
        () = told(&mut stopping) => return Ok(()),
    };
    let version = if begun { HttpVersion::Two } else { HttpVersion::One };
    serve_as(version, stream, router, stopping, patience).await
}

/// Serves one version.
pub(super) async fn serve_as<S>(
    version: HttpVersion,
    stream: S,
    router: Router,
    stopping: watch::Receiver<bool>,
    patience: Patience,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match version {
        HttpVersion::One => serve_one(stream, router, stopping, patience).await,
        HttpVersion::Two => serve_two(stream, router, stopping, patience).await,
    }
}

async fn serve_one<S>(stream: S, router: Router, mut stopping: watch::Receiver<bool>, patience: Patience) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        // The parser drops a length beside a chunked body, as it may if the connection ends with the answer (RFC 9112,
        // 6.3): what a proxy in front took for the next request would be another.
        let chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let answer = router.call(request);
        async move {
            let mut answer = answer.await?;
            if chunked {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience.head).max_buf_size(HEAD_BYTES_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        () = told(&mut stopping) => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}

/// The protocol has no end to idleness of its own, so requests are counted: a connection without one for the patience of
/// heads, or for twice that at most, is told to end.
async fn serve_two<S>(stream: S, router: Router, mut stopping: watch::Receiver<bool>, patience: Patience) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::new(Activity::default());
    let router = TowerToHyperService::new(router);
    let counted = Arc::clone(&activity);
    let service = service_fn(move |request: Request<Incoming>| {
        let (running, answer) = (Running::begin(&counted), router.call(request));
        async move { Ok::<_, std::convert::Infallible>(answer.await?.map(|body| Held { body, _running: running })) }
    });
    let mut connection = pin!(http2_builder().serve_connection(TokioIo::new(stream), service));
    let mut begun_before = 0;
    loop {
        tokio::select! {
            ended = connection.as_mut() => return Ok(ended?),
            () = told(&mut stopping) => {
                connection.as_mut().graceful_shutdown();
                return Ok(connection.await?);
            }
            () = sleep(patience.head) => {}
        }
        let begun = activity.begun.load(Ordering::Relaxed);
        if begun == begun_before && activity.running.load(Ordering::Relaxed) == 0 {
            connection.as_mut().graceful_shutdown();
            return Ok(timeout(HTTP2_GOODBYE_TIME_MAX.min(patience.head), connection).await??);
        }
        begun_before = begun;
    }
}

fn http2_builder() -> http2::Builder<TokioExecutor> {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
        .max_pending_accept_reset_streams(HTTP2_RESETS_MAX)
        .max_local_error_reset_streams(HTTP2_ERRORS_MAX)
        .keep_alive_interval(HTTP2_PING_EVERY)
        .keep_alive_timeout(HTTP2_PING_TIME_MAX);
    http
}

/// The requests of a connection.
#[derive(Debug, Default)]
struct Activity {
    begun: AtomicUsize,
    running: AtomicUsize,
}

/// A request that is not answered to its end.
#[derive(Debug)]
struct Running(Arc<Activity>);

impl Running {
    fn begin(activity: &Arc<Activity>) -> Running {
        activity.begun.fetch_add(1, Ordering::Relaxed);
        activity.running.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(activity))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body whose request runs until it is sent.
struct Held {
    body: Body,
    _running: Running,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
