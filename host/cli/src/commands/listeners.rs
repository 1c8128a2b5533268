//! The addresses of `saggar serve`, and whether they require keys.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use saggar_clock::{Clock, SystemClock};
use saggar_serve::{ServerListener, TlsCertificates};
use saggar_store::KeyFile;

use crate::args::ServeArgs;
use crate::exit::{self, CliError};

/// An address to listen on: `5000`, `127.0.0.1:5000`, `[::]:5000`, `unix:/run/saggar.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("expected a path after unix:".to_owned()),
            Some(path) => Ok(ListenAddress::Unix(PathBuf::from(path))),
            None => parse_tcp_address(text)
                .map(ListenAddress::Tcp)
                .map_err(|error| format!("{error}, or unix:/run/saggar.sock")),
        }
    }
}

/// Parses a port of this machine, `5000` or `localhost:5000`, or an address with a port, `127.0.0.1:5000`.
///
/// # Errors
/// Returns a message with the expected form.
pub(crate) fn parse_tcp_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    // `parse` would accept a sign.
    if port.starts_with(|first: char| first.is_ascii_digit())
        && let Ok(port) = port.parse::<u16>()
    {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    text.parse().map_err(|_| format!("{text:?}: expected a port such as 5000, an address such as 127.0.0.1:5000"))
}

impl ListenAddress {
    /// Returns whether other machines can reach the address.
    fn is_public(&self) -> bool {
        matches!(self, ListenAddress::Tcp(address) if !address.ip().to_canonical().is_loopback())
    }
}

/// Checks that a server that listens beyond this machine has a key, and reads the TLS certificate. Both happen before
/// slow work starts.
pub(crate) fn check_exposure(args: &ServeArgs, keys: &KeyFile) -> Result<Option<TlsCertificates>, CliError> {
    let records = keys.read().map_err(|error| CliError::new(exit::UNEXPECTED, "keys", error.to_string()))?;
    let now_ms = SystemClock.now_ms();
    let any = records.iter().any(|key| !key.is_expired(now_ms));
    if let Some(ListenAddress::Tcp(address)) = args.addr.iter().find(|address| address.is_public())
        && !any
        && !args.insecure
    {
        let message =
            format!("{address} can be reached from other machines, but there is no API key, so nobody could use it");
        let hint = "create one with `saggar key create NAME --scope predict`, listen on 127.0.0.1, or add --insecure if \
                    everybody who can reach it is allowed to do everything";
        return Err(CliError::invalid(message).with_hint(hint));
    }
    if args.require_keys && !any {
        tracing::warn!("keys are required but no key exists: create one with `saggar key create NAME --scope predict`");
    }
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
    let certificates = TlsCertificates::load(certificate, key);
    certificates.map(Some).map_err(|error| CliError::invalid(format!("no TLS: {error}")))
}

/// Opens all listeners.
pub(crate) async fn open_listeners(
    args: &ServeArgs,
    certificates: Option<TlsCertificates>,
) -> Result<Vec<ServerListener>, CliError> {
    let mut listeners = Vec::with_capacity(args.addr.len());
    for address in &args.addr {
        let public = address.is_public();
        let guarded = args.require_keys || (public && !args.insecure);
        if public && guarded && certificates.is_none() {
            tracing::warn!("keys and answers travel unencrypted; --tls-cert and --tls-key encrypt them");
        }
        let listener = match address {
            ListenAddress::Tcp(address) => {
                ServerListener::tcp(*address, certificates.clone(), guarded).await.map_err(|error| {
                    let message = format!("cannot listen on {address}: {error}");
                    CliError::new(exit::CONFLICT, "address", message)
                        .with_hint("another server may be there; --addr takes another address")
                })
            }
            ListenAddress::Unix(path) => ServerListener::unix(path, guarded).map_err(|error| {
                let message = format!("cannot listen on unix:{}: {error}", path.display());
                CliError::new(exit::CONFLICT, "address", message)
            }),
        };
        listeners.push(listener?);
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_are_ports_hosts_or_socket_files() {
        let public = |text: &str| text.parse::<ListenAddress>().unwrap().is_public();
        for text in ["127.0.0.1:0", "[::1]:5000", "127.9.9.9:1", "[::ffff:127.0.0.1]:1", "unix:/run/s.sock"] {
            assert!(!public(text), "{text}");
        }
        for text in ["0.0.0.0:5000", "[::]:5000", "192.168.1.1:80"] {
            assert!(public(text), "{text}");
        }
        assert_eq!("unix:s.sock".parse(), Ok(ListenAddress::Unix("s.sock".into())));
        let local = |port| Ok(ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], port))));
        for (text, port) in [("5111", 5111), ("0", 0), ("localhost:5000", 5000)] {
            assert_eq!(text.parse(), local(port), "{text}");
        }
        for text in ["", "localhost", "65536", "+5000", "-1", "50 00", ":5000", "unix:", "http://127.0.0.1:1"] {
            assert!(text.parse::<ListenAddress>().is_err(), "{text}");
        }
    }
}
