//! Connections: accepting, timing out, and letting them finish when the server stops.
//!
//! A connection goes the same way whatever it comes in by: [`listener`] accepts it, [`tls`] opens it where there is a
//! certificate, [`http`] finds out which HTTP it speaks and serves it; [`stream`] lies under both.

mod http;
pub(crate) mod listener;
mod stream;
pub(crate) mod tls;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::limits::{ANSWER_QUIET_MAX, CONNECTIONS_MAX, DRAIN_TIME_MAX, HANDSHAKE_TIME_MAX, HEAD_TIME_MAX};
use listener::{Accepted, Listener};
use stream::Stream;
use tls::Certificates;

/// How long clients are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For a request's head, and between requests.
    pub(crate) head: Duration,
    /// For a TLS handshake.
    pub(crate) handshake: Duration,
    /// For a client to take a byte of its answer.
    pub(crate) answer: Duration,
    /// For requests in flight once the server stops.
    pub(crate) drain: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { head: HEAD_TIME_MAX, handshake: HANDSHAKE_TIME_MAX, answer: ANSWER_QUIET_MAX, drain: DRAIN_TIME_MAX }
    }
}

/// Serves each router to what comes in by its listener until `shutdown` is true; then accepts no more, lets requests in
/// flight finish, and returns.
pub(crate) async fn serve(
    entrances: Vec<(Listener, Router)>,
    shutdown: watch::Receiver<bool>,
    patience: Patience,
) -> io::Result<()> {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut accepting = JoinSet::new();
    for (listener, router) in entrances {
        accepting.spawn(accept(listener, router, Arc::clone(&connections), shutdown.clone(), patience));
    }
    while let Some(ended) = accepting.join_next().await {
        ended.map_err(io::Error::other)??;
    }
    let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
    if timeout(patience.drain, connections.acquire_many(all)).await.is_err() {
        let open = CONNECTIONS_MAX - connections.available_permits();
        tracing::warn!(open, "connections cut off: their requests took too long");
    }
    Ok(())
}

async fn accept(
    listener: Listener,
    router: Router,
    connections: Arc<Semaphore>,
    mut shutdown: watch::Receiver<bool>,
    patience: Patience,
) -> io::Result<()> {
    let stopping = shutdown.clone();
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&connections).acquire_owned() => permit.map_err(io::Error::other)?,
            () = told(&mut shutdown) => return Ok(()),
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = told(&mut shutdown) => return Ok(()),
        };
        match accepted {
            Ok(stream) => {
                let certificates = listener.certificates().cloned();
                let served = connection(stream, certificates, router.clone(), stopping.clone(), patience);
                tokio::spawn(async move {
                    if let Err(error) = served.await {
                        // Clients come and go as they like; what they were answered is counted elsewhere.
                        tracing::debug!(error, "connection ended");
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
}

async fn connection(
    accepted: Accepted,
    certificates: Option<Certificates>,
    router: Router,
    stopping: watch::Receiver<bool>,
    patience: Patience,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    match (accepted, certificates) {
        (Accepted::Tcp(stream), Some(certificates)) => {
            let opened = tokio::select! {
                opened = timeout(patience.handshake, tls::open(stream, &certificates, patience.answer)) => opened??,
                // Nothing was asked yet.
                () = async { told(&mut stopping.clone()).await } => return Ok(()),
            };
            let Some((stream, version)) = opened else { return Ok(()) };
            http::serve_as(version, stream, router, stopping, patience).await
        }
        (Accepted::Tcp(stream), None) => {
            let _: io::Result<()> = no_delay(&stream);
            http::serve(Stream::new(stream, patience.answer), router, stopping, patience).await
        }
        (Accepted::Unix(stream), _) => {
            http::serve(Stream::new(stream, patience.answer), router, stopping, patience).await
        }
    }
}

/// Answers are small and whole: waiting to fill a packet only delays them.
fn no_delay(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)
}

/// Returns once the server was told to stop; a sender that is gone tells it too.
pub(crate) async fn told(shutdown: &mut watch::Receiver<bool>) {
    // An error means that nobody can tell any more.
    let _ = shutdown.wait_for(|&stop| stop).await;
}
