//! Connections: accepting, timing out, and letting them finish when the server stops.
//!
//! A connection goes the same way whatever it comes in by: [`listener`] accepts it, [`tls`] opens it where there is a
//! certificate, [`http`] finds out which HTTP it speaks and serves it; [`stream`] lies under both.

mod activity;
mod admission;
mod answers;
pub(crate) mod descriptors;
mod http;
pub(crate) mod listener;
mod stream;
pub(crate) mod tls;

use std::io;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::limits::{ANSWER_QUIET_MAX, DRAIN_TIME_MAX, HANDSHAKE_TIME_MAX, HEAD_TIME_MAX};
pub(crate) use activity::{ConnectionActivity, PeerAddress};
use admission::{Admission, ConnectionEntrance};
use descriptors::Capacity;
use http::HttpSession;
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
    /// For a client to take what it is sent, beyond what the bytes that it takes are worth.
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
    capacity: Capacity,
) -> io::Result<()> {
    let admission = Admission::new(capacity, entrances.len());
    let (open, mut closed) = mpsc::channel(1);
    let mut accepting = JoinSet::new();
    for (number, (listener, router)) in entrances.into_iter().enumerate() {
        let entrance = admission.entrance(number, listener.door().guarded, open.clone());
        accepting.spawn(accept(listener, router, entrance, shutdown.clone(), patience));
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

async fn accept(
    listener: Listener,
    router: Router,
    entrance: ConnectionEntrance,
    mut shutdown: watch::Receiver<bool>,
    patience: Patience,
) -> io::Result<()> {
    let stopping = shutdown.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = told(&mut shutdown) => return Ok(()),
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
            () = told(&mut shutdown) => return Ok(()),
        };
        let Some(admitted) = admitted else {
            tracing::debug!(peer = ?accepted.peer(), "a connection is refused: its peer has as many as it may");
            continue;
        };
        let certificates = listener.certificates().cloned();
        let (activity, stopping) = (admitted.activity().clone(), stopping.clone());
        let session = HttpSession { router: router.clone(), stopping, patience, activity };
        tokio::spawn(async move {
            if let Err(error) = connection(accepted, certificates, session).await {
                // Clients come and go as they like; what they were answered is counted elsewhere.
                tracing::debug!(error, "connection ended");
            }
            drop(admitted);
        });
    }
}

async fn connection(accepted: Accepted, certificates: Option<Certificates>, mut session: HttpSession) -> http::Ended {
    let patience = session.patience;
    match (accepted, certificates) {
        (Accepted::Tcp(stream, _), Some(certificates)) => {
            let opened = tokio::select! {
                opened = timeout(patience.handshake, tls::open(stream, &certificates, patience.answer)) => opened??,
                // Nothing was asked yet.
                _ = session.ending() => return Ok(()),
            };
            let Some((stream, version)) = opened else { return Ok(()) };
            http::serve_as(version, stream, session).await
        }
        (Accepted::Tcp(stream, _), None) => {
            let _: io::Result<()> = no_delay(&stream);
            http::serve(Stream::new(stream, patience.answer), session).await
        }
        (Accepted::Unix(stream), _) => http::serve(Stream::new(stream, patience.answer), session).await,
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
