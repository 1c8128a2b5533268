//! The addresses that servers listen on.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// An address to listen on: `5000`, `127.0.0.1:5000`, `[::]:5000`, `unix:/run/saggar.sock`, `systemd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// The sockets that systemd passes to the process.
    Systemd,
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        if text == "systemd" {
            return Ok(ListenAddress::Systemd);
        }
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
pub(super) fn parse_tcp_address(text: &str) -> Result<SocketAddr, String> {
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
    /// Returns whether other machines can reach the address. The addresses of systemd's sockets are not known here.
    pub(crate) fn is_public(&self) -> bool {
        matches!(self, ListenAddress::Tcp(address) if !address.ip().to_canonical().is_loopback())
    }
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
        assert_eq!("systemd".parse(), Ok(ListenAddress::Systemd));
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
