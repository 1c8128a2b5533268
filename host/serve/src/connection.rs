//! Connections: accepting, timing out, and letting them finish when the server stops.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::limits::{CONNECTIONS_MAX, DRAIN_TIME_MAX, HEAD_BYTES_MAX, HEAD_TIME_MAX};

/// How long clients are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For a request's head.
    pub(crate) head: Duration,
    /// For requests in flight once the server stops.
    pub(crate) drain: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { head: HEAD_TIME_MAX, drain: DRAIN_TIME_MAX }
    }
}

/// Serves `router` until `shutdown` is true; then accepts no more, lets requests in flight finish, and returns.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    mut shutdown: watch::Receiver<bool>,
    patience: Patience,
) -> io::Result<()> {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let stopping = shutdown.clone();
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&connections).acquire_owned() => permit.map_err(io::Error::other)?,
            () = told(&mut shutdown) => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = told(&mut shutdown) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (router, stopping) = (router.clone(), stopping.clone());
                tokio::spawn(async move {
                    if let Err(error) = connection(stream, router, stopping, patience).await {
                        // Clients come and go as they like; what they were answered is counted elsewhere.
                        tracing::debug!(%peer, %error, "connection ended");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                // Out of file descriptors, or a client that left at once: neither lasts.
                tracing::warn!(%error, "accepting a connection failed");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
    if timeout(patience.drain, connections.acquire_many(all)).await.is_err() {
        let open = CONNECTIONS_MAX - connections.available_permits();
        tracing::warn!(open, "connections cut off: their requests took too long");
    }
    Ok(())
}

async fn connection(
    stream: TcpStream,
    router: Router,
    mut stopping: watch::Receiver<bool>,
    patience: Patience,
) -> hyper::Result<()> {
    // Answers are small and whole: waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience.head).max_buf_size(HEAD_BYTES_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = told(&mut stopping) => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

/// Returns once the server was told to stop; a sender that is gone tells it too.
pub(crate) async fn told(shutdown: &mut watch::Receiver<bool>) {
    // An error means that nobody can tell any more.
    let _ = shutdown.wait_for(|&stop| stop).await;
}
