//! Connections: accepting, timing out, and letting them finish when the server stops.
//!
//! A connection goes the same way whatever it comes in by: [`listener`] accepts it, [`tls`] opens it where there is a
//! certificate, [`http`] finds out which HTTP it speaks and serves it; [`stream`] lies under both.

mod activity;
mod admission;
pub(crate) mod file_descriptors;
mod http;
pub(crate) mod listener;
mod peekable_stream;
mod response_tracking;
pub(crate) mod tls;

use std::io;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::limits::{ANSWER_IDLE_MAX, DRAIN_TIME_MAX, HANDSHAKE_TIME_MAX, HEAD_TIME_MAX};
pub(crate) use activity::{ConnectionActivity, PeerAddress};
use admission::{ConnectionAdmission, ListenerAdmission};
use file_descriptors::ConnectionCapacity;
use http::HttpSession;
use listener::{AcceptedConnection, ServerListener};
use peekable_stream::PeekableStream;
use tls::TlsCertificates;

/// How long clients are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionTimeouts {
    /// For a request's head, and between requests.
    pub(crate) head: Duration,
    /// For a TLS handshake.
    pub(crate) handshake: Duration,
    /// For a client to take what it is sent, beyond what the bytes that it takes are worth.
    pub(crate) response: Duration,
    /// For requests in flight once the server stops.
    pub(crate) drain: Duration,
}

impl Default for ConnectionTimeouts {
    fn default() -> ConnectionTimeouts {
        ConnectionTimeouts {
            head: HEAD_TIME_MAX,
            handshake: HANDSHAKE_TIME_MAX,
            response: ANSWER_IDLE_MAX,
            drain: DRAIN_TIME_MAX,
        }
    }
}

/// Serves each router to what comes in by its listener until `shutdown` is true; then accepts no more, lets requests in
/// flight finish, and returns.
pub(crate) async fn serve(
    entrances: Vec<(ServerListener, Router)>,
    shutdown: watch::Receiver<bool>,
    patience: ConnectionTimeouts,
    capacity: ConnectionCapacity,
) -> io::Result<()> {
    let admission = ConnectionAdmission::new(capacity, entrances.len());
    let (open, mut closed) = mpsc::channel(1);
    let mut accepting = JoinSet::new();
    for (number, (listener, router)) in entrances.into_iter().enumerate() {
        let entrance = admission.for_listener(number, listener.listen_policy().requires_key, open.clone());
        accepting.spawn(accept_connections(listener, router, entrance, shutdown.clone(), patience));
    }
    drop(open);
    while let Some(ended) = accepting.join_next().await {
        ended.map_err(io::Error::other)??;
    }
    if timeout(patience.drain, closed.recv()).await.is_err() {
        tracing::warn!(open = admission.count(), "connections cut off: their requests took too long");
    }
    Ok(())
}

async fn accept_connections(
    listener: ServerListener,
    router: Router,
    entrance: ListenerAdmission,
    mut shutdown: watch::Receiver<bool>,
    patience: ConnectionTimeouts,
) -> io::Result<()> {
    let stopping = shutdown.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = wait_for_shutdown(&mut shutdown) => return Ok(()),
        };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, or a client that left at once: neither lasts.
                tracing::warn!(%error, "accepting a connection failed");
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let admitted = tokio::select! {
            admitted = entrance.admit(accepted.peer()) => admitted,
            () = wait_for_shutdown(&mut shutdown) => return Ok(()),
        };
        let Some(admitted) = admitted else {
            tracing::debug!(peer = ?accepted.peer(), "a connection is refused: its peer has as many as it may");
            continue;
        };
        let certificates = listener.certificates().cloned();
        let (activity, stopping) = (admitted.activity().clone(), stopping.clone());
        let session = HttpSession { router: router.clone(), stopping, patience, activity };
        tokio::spawn(async move {
            if let Err(error) = serve_connection(accepted, certificates, session).await {
                // Clients come and go as they like; what they were answered is counted elsewhere.
                tracing::debug!(error, "connection ended");
            }
            drop(admitted);
        });
    }
}

async fn serve_connection(
    accepted: AcceptedConnection,
    certificates: Option<TlsCertificates>,
    mut session: HttpSession,
) -> http::ConnectionResult {
    let patience = session.patience;
    match (accepted, certificates) {
        (AcceptedConnection::Tcp(stream, _), Some(certificates)) => {
            let opened = tokio::select! {
                opened = timeout(patience.handshake, tls::accept_tls(stream, &certificates, patience.response)) => opened??,
                // Nothing was asked yet.
                _ = session.wait_for_end() => return Ok(()),
            };
            let Some((stream, version)) = opened else { return Ok(()) };
            http::serve_version(version, stream, session).await
        }
        (AcceptedConnection::Tcp(stream, _), None) => {
            let _: io::Result<()> = set_no_delay(&stream);
            http::serve(PeekableStream::new(stream, patience.response), session).await
        }
        (AcceptedConnection::Unix(stream), _) => {
            http::serve(PeekableStream::new(stream, patience.response), session).await
        }
    }
}

/// Answers are small and whole: waiting to fill a packet only delays them.
fn set_no_delay(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)
}

/// Returns once the server was told to stop; a sender that is gone tells it too.
pub(crate) async fn wait_for_shutdown(shutdown: &mut watch::Receiver<bool>) {
    // An error means that nobody can tell any more.
    let _ = shutdown.wait_for(|&stop| stop).await;
}
