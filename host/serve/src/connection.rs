//! Accepts connections, enforces their timeouts, and lets them finish when the server stops.
//!
//! All connections are handled the same way: [`listener`] accepts them, [`tls`] does the handshake if there is a
//! certificate, [`http`] detects the HTTP version and serves requests. Both read and write through [`peekable_stream`].

mod activity;
mod admission;
pub(crate) mod file_descriptors;
mod http;
pub(crate) mod listener;
mod peekable_stream;
mod response_tracking;
mod timeouts;
pub(crate) mod tls;

use std::io;
use std::time::Duration;

use axum::Router;
use saggar_serving::shutdown::wait_for_shutdown;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub(crate) use activity::{ConnectionActivity, PeerAddress};
use admission::{ConnectionAdmission, ListenerAdmission};
use file_descriptors::ConnectionCapacity;
use http::HttpSession;
use listener::{AcceptedConnection, ServerListener};
use peekable_stream::PeekableStream;
use peekable_stream::set_no_delay;
pub(crate) use timeouts::ConnectionTimeouts;
use tls::TlsCertificates;

/// Serves each router to the connections of its listener until `shutdown` is true. Then accepts no more connections,
/// lets requests in flight finish, and returns.
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
                // The process has no free file descriptors, or the client has already gone: both are temporary.
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
            tracing::debug!(peer = ?accepted.peer(), "connection refused: its peer has reached the limit of connections");
            continue;
        };
        let certificates = listener.certificates().cloned();
        let (activity, stopping) = (admitted.activity().clone(), stopping.clone());
        let session = HttpSession { router: router.clone(), stopping, patience, activity };
        tokio::spawn(async move {
            if let Err(error) = serve_connection(accepted, certificates, session).await {
                // Clients disconnect at any time; the results of their requests are counted elsewhere.
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
                // No request has arrived yet.
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
