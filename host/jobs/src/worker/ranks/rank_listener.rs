//! Rank 0 admits the ranks of other hosts: a port that is open until all of them have connected.
//!
//! Everything on the port is hostile until its token is checked: a connection has a limited time and a limited size to
//! authenticate itself, a limited number of them can try at the same time, and for a newer one the oldest is ended.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::time::{Duration, Instant};

use rustls::Connection;
use saggar_store::Digest;
use saggar_store::records::MeetingPoint;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::rank_key::RankKey;
use super::rank_link::RankLink;
use super::tls_stream::detect_unreachable;
use crate::limits::{RANK_HANDSHAKE_TIME_MAX, RANK_HANDSHAKES_MAX, RANK_HELLO_BYTES_MAX, RANK_JOIN_TIME_MAX};
use crate::protocol::PROTOCOL_VERSION;
use crate::rank_network::{RankIdentity, RankNetwork};

/// Time between two looks at what can end the wait.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time before connections are accepted again after the system refused one.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The first message of a rank, after four bytes with its length (little-endian).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RankHello {
    /// The rank's [`PROTOCOL_VERSION`].
    pub(super) protocol: u32,
    #[serde(flatten)]
    pub(super) identity: RankIdentity,
    /// The token of the meeting point.
    pub(super) token: String,
}

/// The port of rank 0.
#[derive(Debug)]
pub(super) struct RankListener {
    listener: TcpListener,
    address: SocketAddr,
    key: RankKey,
    token: String,
}

/// A rank of another host that was admitted.
#[derive(Debug)]
pub(super) struct AdmittedRank {
    pub(super) link: RankLink,
    /// Where it connected from.
    pub(super) address: SocketAddr,
}

/// The result of one connection.
type HandshakeResult = (SocketAddr, Result<(u32, RankLink), String>);

impl RankListener {
    /// Listens with a new key and a new token.
    ///
    /// # Errors
    /// The operating system's error, such as no free port of the range.
    pub(super) fn bind(network: &RankNetwork) -> io::Result<RankListener> {
        let listener = bind_port(network)?;
        listener.set_nonblocking(true)?;
        let address = SocketAddr::new(network.address, listener.local_addr()?.port());
        let key = RankKey::generate().map_err(io::Error::other)?;
        Ok(RankListener { listener, address, key, token: saggar_store::random_hex::<32>() })
    }

    /// Returns what the other ranks need to connect.
    pub(super) fn meeting_point(&self) -> MeetingPoint {
        MeetingPoint { address: self.address.to_string(), key_sha256: self.key.digest.hex(), token: self.token.clone() }
    }

    /// Waits until all of these ranks of the attempt have connected, and closes the port. `leader` is the identity of rank 0.
    /// `report` gets a sentence about each refused connection.
    ///
    /// # Errors
    /// A sentence about the missing ranks, or that `is_over` became true.
    pub(super) async fn admit(
        self,
        ranks: Range<u32>,
        leader: &RankIdentity,
        is_over: impl Fn() -> bool,
        report: impl Fn(String),
    ) -> Result<BTreeMap<u32, AdmittedRank>, String> {
        let expected = RankIdentity { rank: 0, ..leader.clone() };
        let acceptor = TlsAcceptor::from(self.key.config);
        let token = Digest::of(self.token.as_bytes());
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(|error| error.to_string())?;
        let (mut handshakes, mut oldest) = (JoinSet::new(), VecDeque::<AbortHandle>::new());
        let (mut admitted, began) = (BTreeMap::new(), Instant::now());
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        while admitted.len() < ranks.len() {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        oldest.retain(|handshake| !handshake.is_finished());
                        if oldest.len() >= RANK_HANDSHAKES_MAX
                            && let Some(handshake) = oldest.pop_front()
                        {
                            handshake.abort();
                        }
                        let handshake = shake_hands(acceptor.clone(), stream, expected.clone(), token);
                        oldest.push_back(handshakes.spawn(async move { (address, handshake.await) }));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a rank's connection cannot be accepted; trying again");
                        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    }
                },
                Some(done) = handshakes.join_next(), if !handshakes.is_empty() => {
                    if let Err(refused) = add_rank(done, &ranks, &mut admitted) {
                        report(refused);
                    }
                }
                _ = poll.tick() => {
                    if is_over() {
                        return Err("the attempt ends before all its ranks have connected".to_owned());
                    }
                    if began.elapsed() >= RANK_JOIN_TIME_MAX {
                        return Err(missing_ranks(&ranks, &admitted, self.address));
                    }
                }
            }
        }
        Ok(admitted)
    }
}

/// Binds a port at the address of this host, or at every address if the host itself does not have it, as behind a router.
fn bind_port(network: &RankNetwork) -> io::Result<TcpListener> {
    let bind = |address: IpAddr| match network.ports {
        None => TcpListener::bind((address, 0)),
        Some(ports) => {
            let mut bound = ports.ports().map(|port| TcpListener::bind((address, port)));
            let in_use = || io::Error::new(io::ErrorKind::AddrInUse, format!("no port of {ports} is free"));
            let is_decided = |bound: &io::Result<TcpListener>| !matches!(bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
            bound.find(is_decided).unwrap_or_else(|| Err(in_use()))
        }
    };
    match bind(network.address) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => bind(match network.address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        }),
        bound => bound,
    }
}

/// Adds the rank of a connection, or returns why it was refused.
fn add_rank(
    done: Result<HandshakeResult, JoinError>,
    ranks: &Range<u32>,
    admitted: &mut BTreeMap<u32, AdmittedRank>,
) -> Result<(), String> {
    // A handshake that was ended for a newer one is not worth a line: its peer sent nothing.
    let Ok((address, result)) = done else { return Ok(()) };
    let refused = |reason: &str| format!("a connection of {address} to the port of the ranks was refused: {reason}");
    let (rank, link) = result.map_err(|reason| refused(&reason))?;
    if !ranks.contains(&rank) {
        return Err(refused(&format!("rank {rank} is not one of other hosts")));
    }
    if admitted.contains_key(&rank) {
        return Err(refused(&format!("rank {rank} has connected already")));
    }
    admitted.insert(rank, AdmittedRank { link, address });
    Ok(())
}

fn missing_ranks(ranks: &Range<u32>, admitted: &BTreeMap<u32, AdmittedRank>, address: SocketAddr) -> String {
    let missing: Vec<String> =
        ranks.clone().filter(|rank| !admitted.contains_key(rank)).map(|rank| rank.to_string()).collect();
    let seconds = RANK_JOIN_TIME_MAX.as_secs();
    format!(
        "rank {} did not connect to {address} within {seconds} s: check that the other hosts reach this address \
         (--advertise) and its ports (--rank-ports)",
        missing.join(", ")
    )
}

/// Authenticates both sides of a connection. Returns the rank and its link.
async fn shake_hands(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    expected: RankIdentity,
    token: Digest,
) -> Result<(u32, RankLink), String> {
    let authenticated = tokio::time::timeout(RANK_HANDSHAKE_TIME_MAX, async {
        detect_unreachable(&stream).map_err(|error| error.to_string())?;
        let mut stream = acceptor.accept(stream).await.map_err(|error| error.to_string())?;
        let hello = read_hello(&mut stream).await.map_err(|error| error.to_string())?;
        check_hello(hello, &expected, token).map(|rank| (rank, stream.into_inner()))
    });
    let (rank, (socket, connection)) = authenticated.await.map_err(|_| "it was too slow".to_owned())??;
    let link = socket.into_std().and_then(|socket| {
        // The end of a rank is noticed when rank 0 needs it.
        RankLink::over_tls(socket, Connection::Server(connection), Box::new(|| {}))
    });
    link.map(|link| (rank, link)).map_err(|error| error.to_string())
}

async fn read_hello(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Result<RankHello> {
    let bytes = stream.read_u32_le().await?;
    if bytes > RANK_HELLO_BYTES_MAX {
        return Err(io::Error::other(format!("a first message of {bytes} bytes")));
    }
    let mut hello = vec![0; bytes as usize];
    stream.read_exact(&mut hello).await?;
    serde_json::from_slice(&hello).map_err(|_| io::Error::other("the first message is not a rank's"))
}

/// Returns the rank of a hello if it has the token and is of this attempt.
fn check_hello(hello: RankHello, expected: &RankIdentity, token: Digest) -> Result<u32, String> {
    // Digests are compared, so the time depends on no token.
    if Digest::of(hello.token.as_bytes()) != token {
        return Err("its token is not that of the attempt".to_owned());
    }
    if hello.protocol != PROTOCOL_VERSION {
        let found = hello.protocol;
        return Err(format!(
            "it uses version {found} of the protocol, and this host version {PROTOCOL_VERSION}: all hosts need the same \
             build, as `saggar version` shows"
        ));
    }
    if (RankIdentity { rank: 0, ..hello.identity.clone() }) != *expected {
        return Err("it is of another attempt".to_owned());
    }
    Ok(hello.identity.rank)
}
