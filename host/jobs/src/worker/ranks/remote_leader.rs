//! A rank on another host than rank 0: connects to rank 0, and ends with it and with the process that started it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection};
use saggar_store::Digest;

use super::rank_key;
use super::rank_link::{RankLink, RankMessageKind};
use super::rank_listener::RankHello;
use crate::limits::{CONNECT_TIME_MAX, RANK_HANDSHAKE_TIME_MAX};
use crate::protocol::{AttemptConfig, EXIT_TRY_AGAIN, PROTOCOL_VERSION};
use crate::rank_network::RankCredentials;

/// Connects to rank 0, and receives the attempt's configuration. The process ends when the connection does.
///
/// # Errors
/// An I/O error if rank 0 is gone, has another key than the records say, or refuses this rank.
pub(crate) fn connect(credentials: &RankCredentials) -> io::Result<(RankLink, AttemptConfig)> {
    let link = connect_link(credentials, Box::new(|| std::process::exit(EXIT_TRY_AGAIN)))?;
    let config = link.receive(0, RankMessageKind::Config).map_err(|error| {
        io::Error::new(io::ErrorKind::ConnectionRefused, format!("rank 0 does not admit this rank: {error:?}"))
    })?;
    let config: AttemptConfig = serde_json::from_slice(&config).map_err(io::Error::other)?;
    let mut spec = config.spec;
    spec.device.clone_from(&credentials.device);
    Ok((link, AttemptConfig { spec, ..config }))
}

/// Connects to rank 0 and introduces this rank.
pub(super) fn connect_link(
    credentials: &RankCredentials,
    on_end: super::tls_stream::OnRankEnd,
) -> io::Result<RankLink> {
    let point = &credentials.meeting_point;
    let address: SocketAddr = point.address.parse().map_err(io::Error::other)?;
    let digest: Digest = point.key_sha256.parse().map_err(io::Error::other)?;
    let config = rank_key::client_config(digest).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(config, ServerName::from(address.ip())).map_err(io::Error::other)?;
    let mut socket = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX)?;
    socket.set_read_timeout(Some(RANK_HANDSHAKE_TIME_MAX))?;
    socket.set_write_timeout(Some(RANK_HANDSHAKE_TIME_MAX))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    let hello =
        RankHello { protocol: PROTOCOL_VERSION, identity: credentials.identity.clone(), token: point.token.clone() };
    let hello = serde_json::to_vec(&hello)?;
    connection.writer().write_all(&(hello.len() as u32).to_le_bytes())?;
    connection.writer().write_all(&hello)?;
    while connection.wants_write() {
        connection.write_tls(&mut socket)?;
    }
    socket.set_read_timeout(None)?;
    RankLink::over_tls(socket, Connection::Client(connection), on_end)
}

/// Ends this process when its standard input ends, which the process that started it holds open.
///
/// # Errors
/// An I/O error if the system cannot start a thread.
pub(crate) fn end_with_host() -> io::Result<()> {
    let watch = || {
        let mut byte = [0];
        while io::stdin().read(&mut byte).is_ok_and(|read| read > 0) {}
        std::process::exit(EXIT_TRY_AGAIN);
    };
    std::thread::Builder::new().name("host".to_owned()).spawn(watch).map(drop)
}
