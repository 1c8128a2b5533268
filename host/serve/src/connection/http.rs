//! HTTP/1.1 and HTTP/2 over an open stream.

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, Request, header};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use saggar_serving::shutdown::wait_for_shutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::activity::ConnectionActivity;
use super::peekable_stream::PeekableStream;
use super::response_tracking::{ConnectionResponses, StreamExecutor, TrackedBody, TrackedResponse};
use super::timeouts::ConnectionTimeouts;
use crate::limits::{
    ANSWER_POLL, EVICTED_CONNECTION_TIME_MAX, HEAD_BYTES_MAX, HTTP2_CONNECTION_WINDOW, HTTP2_ERRORS_MAX,
    HTTP2_GOAWAY_TIME_MAX, HTTP2_PING_INTERVAL, HTTP2_PING_TIME_MAX, HTTP2_RESETS_MAX, HTTP2_SEND_BYTES_MAX,
    HTTP2_STREAM_WINDOW, HTTP2_STREAMS_MAX,
};

pub(super) type ConnectionResult = Result<(), Box<dyn Error + Send + Sync>>;

/// The HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpVersion {
    /// HTTP/1.0 and 1.1.
    One,
    /// HTTP/2.
    Two,
}

/// The context of serving a connection.
#[derive(Debug)]
pub(super) struct HttpSession {
    pub(super) router: Router,
    pub(super) stopping: watch::Receiver<bool>,
    pub(super) patience: ConnectionTimeouts,
    pub(super) activity: Arc<ConnectionActivity>,
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// The server stops.
    Stop,
    /// Another connection needs the place.
    Eviction,
}

impl HttpSession {
    /// Waits until the connection has to end.
    pub(super) async fn wait_for_end(&mut self) -> ConnectionEnd {
        tokio::select! {
            () = wait_for_shutdown(&mut self.stopping) => ConnectionEnd::Stop,
            () = self.activity.wait_for_eviction() => ConnectionEnd::Eviction,
        }
    }
}

/// Waits for a connection that was asked to end.
async fn finish_connection(
    connection: impl Future<Output = hyper::Result<()>>,
    ending: ConnectionEnd,
    session: &HttpSession,
) -> ConnectionResult {
    let mut connection = pin!(connection);
    if ending == ConnectionEnd::Eviction {
        if let Ok(ended) = timeout(EVICTED_CONNECTION_TIME_MAX, connection.as_mut()).await {
            return Ok(ended?);
        }
        // A request that was just received is still answered, unless its client is unauthenticated.
        if session.activity.requests_running() == 0 || !session.activity.is_authenticated() {
            return Ok(());
        }
    }
    Ok(connection.await?)
}

/// Detects the HTTP version and serves the connection.
pub(super) async fn serve<S>(mut stream: PeekableStream<S>, mut session: HttpSession) -> ConnectionResult
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let begun = tokio::select! {
        begun = timeout(session.patience.head, stream.begins_http2()) => begun??,
        // No request has arrived yet.
        _ = session.wait_for_end() => return Ok(()),
    };
    let version = if begun { HttpVersion::Two } else { HttpVersion::One };
    serve_version(version, stream, session).await
}

/// Runs the tunnel of a connection that continues with another protocol, until it or the connection has to end.
async fn run_tunnel(session: &mut HttpSession) {
    if let Some(tunnel) = session.activity.take_tunnel() {
        tokio::select! {
            () = tunnel => {}
            _ = session.wait_for_end() => {}
        }
    }
}

/// Serves a connection of one HTTP version.
pub(super) async fn serve_version<S>(version: HttpVersion, stream: S, session: HttpSession) -> ConnectionResult
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match version {
        HttpVersion::One => serve_http1(stream, session).await,
        HttpVersion::Two => serve_http2(stream, session).await,
    }
}

async fn serve_http1<S>(stream: S, mut session: HttpSession) -> ConnectionResult
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(session.router.clone());
    let activity = Arc::clone(&session.activity);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let pending = TrackedResponse::begin(&activity);
        request.extensions_mut().insert(Arc::clone(&activity));
        // The parser drops Content-Length if the body is chunked, which RFC 9112, 6.3 allows only if the connection
        // ends with the response: a proxy in front can disagree about where the next request begins.
        let chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let answer = router.call(request);
        async move {
            let mut answer = answer.await?;
            if chunked {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer.map(|body| TrackedBody::unchunked(body, pending)))
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(session.patience.head).max_buf_size(HEAD_BYTES_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service).with_upgrades());
    let ending = tokio::select! {
        ended = connection.as_mut() => {
            ended?;
            run_tunnel(&mut session).await;
            return Ok(());
        }
        ending = session.wait_for_end() => ending,
    };
    connection.as_mut().graceful_shutdown();
    finish_connection(connection, ending, &session).await
}

/// Serves HTTP/2. The protocol does not limit idle connections or unread responses, so both are handled here: a
/// connection without a request for the head timeout is asked to end.
async fn serve_http2<S>(stream: S, mut session: HttpSession) -> ConnectionResult
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answers = Arc::new(ConnectionResponses::default());
    let executor = StreamExecutor::default();
    let router = TowerToHyperService::new(session.router.clone());
    let (activity, begun, expecting) = (Arc::clone(&session.activity), Arc::clone(&answers), executor.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let pending = begun.begin(&activity);
        expecting.expect_response(&pending);
        request.extensions_mut().insert(Arc::clone(&activity));
        let answer = router.call(request);
        async move { Ok::<_, Infallible>(answer.await?.map(|body| TrackedBody::chunked(body, pending))) }
    });
    let mut connection = pin!(http2_builder(executor).serve_connection(TokioIo::new(stream), service));
    let patience = session.patience;
    let pause = ANSWER_POLL.min(patience.response / 4).min(patience.head);
    let (mut begun_before, mut idle, mut looked) = (0, Duration::ZERO, Instant::now());
    loop {
        tokio::select! {
            ended = connection.as_mut() => return Ok(ended?),
            ending = session.wait_for_end() => {
                connection.as_mut().graceful_shutdown();
                return finish_connection(connection, ending, &session).await;
            }
            () = sleep(pause) => {}
        }
        // Time in which this process was suspended is not charged to clients.
        let elapsed = looked.elapsed().min(2 * pause);
        looked = Instant::now();
        if answers.charge(elapsed, patience.response) {
            connection.as_mut().graceful_shutdown();
            return Ok(timeout(patience.drain, connection).await??);
        }
        let begun = session.activity.requests_started();
        let is_idle = begun == begun_before && session.activity.requests_running() == 0;
        idle = if is_idle { idle + elapsed } else { Duration::ZERO };
        begun_before = begun;
        if idle >= patience.head {
            connection.as_mut().graceful_shutdown();
            return Ok(timeout(HTTP2_GOAWAY_TIME_MAX.min(patience.head), connection).await??);
        }
    }
}

fn http2_builder(executor: StreamExecutor) -> http2::Builder<StreamExecutor> {
    let mut http = http2::Builder::new(executor);
    http.timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
        .max_send_buf_size(HTTP2_SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(HTTP2_RESETS_MAX)
        .max_local_error_reset_streams(HTTP2_ERRORS_MAX)
        .keep_alive_interval(HTTP2_PING_INTERVAL)
        .keep_alive_timeout(HTTP2_PING_TIME_MAX);
    http
}
