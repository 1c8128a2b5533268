//! Streams between workers and their server: the server listens, and a worker connects. Unix sockets connect processes
//! of one machine, and TCP those of several. What is sent on a stream is [`crate::protocol`]'s concern.

use std::fmt::{self, Debug};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::str::FromStr;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

mod tcp;
mod unix;

pub use tcp::TcpWorkerListener;
pub use unix::UnixWorkerListener;

/// Where a server listens for workers. The text is `unix:NAME` or `tcp:HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum WorkerAddress {
    /// A Unix socket of this machine.
    Unix(String),
    /// A TCP port.
    Tcp(SocketAddr),
}

/// Text that is not the address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid worker address {0:?}: expected unix:NAME, or tcp:ADDRESS:PORT such as tcp:10.0.0.1:8001")]
pub struct ParseWorkerAddressError(String);

impl fmt::Display for WorkerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkerAddress::Unix(name) => write!(f, "unix:{name}"),
            WorkerAddress::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

impl FromStr for WorkerAddress {
    type Err = ParseWorkerAddressError;

    fn from_str(text: &str) -> Result<WorkerAddress, ParseWorkerAddressError> {
        let parsed = match text.split_once(':') {
            Some(("unix", name)) if !name.is_empty() => Some(WorkerAddress::Unix(name.to_owned())),
            Some(("tcp", address)) => address.parse().ok().map(WorkerAddress::Tcp),
            _ => None,
        };
        parsed.ok_or_else(|| ParseWorkerAddressError(text.to_owned()))
    }
}

impl TryFrom<String> for WorkerAddress {
    type Error = ParseWorkerAddressError;

    fn try_from(text: String) -> Result<WorkerAddress, ParseWorkerAddressError> {
        text.parse()
    }
}

impl From<WorkerAddress> for String {
    fn from(address: WorkerAddress) -> String {
        address.to_string()
    }
}

/// The server's end of the transport. The gateway calls it from one task.
#[async_trait]
pub trait WorkerListener: Send + Sync + Debug {
    /// Returns the address that a worker connects to.
    fn address(&self) -> WorkerAddress;

    /// Waits for a connection. It is not authenticated: its first line does that. Can be dropped while it waits without
    /// losing a connection.
    ///
    /// # Errors
    /// The operating system's error, such as too many open files. The caller tries again later.
    async fn accept(&self) -> io::Result<Box<dyn WorkerStream>>;
}

/// The server's end of a connection.
pub trait WorkerStream: AsyncRead + AsyncWrite + Send + Unpin + Debug {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + Debug> WorkerStream for S {}

/// The worker's end of a connection. Writes block while the server reads nothing: a slow server slows its workers down.
pub trait ServerStream: Read + Write + Send + Debug {
    /// Returns another handle of the same connection, so that one thread can read and another one write.
    ///
    /// # Errors
    /// The operating system's error.
    fn try_clone_stream(&self) -> io::Result<Box<dyn ServerStream>>;

    /// Sends the end of the stream. The server still receives everything that was written before.
    ///
    /// # Errors
    /// The operating system's error, for example if the server is gone.
    fn shutdown_write(&self) -> io::Result<()>;
}

/// Connects to a server. Called by a worker once, when it starts; blocks.
///
/// # Errors
/// The operating system's error, for example if the server is gone.
pub fn connect(address: &WorkerAddress) -> io::Result<Box<dyn ServerStream>> {
    match address {
        WorkerAddress::Unix(name) => unix::connect(name),
        WorkerAddress::Tcp(address) => tcp::connect(*address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_as_text() {
        for text in ["unix:saggar-1", "tcp:127.0.0.1:80", "tcp:[::1]:80"] {
            assert_eq!(text.parse::<WorkerAddress>().unwrap().to_string(), text);
        }
        for text in ["", "unix:", "tcp:host", "http://a", "127.0.0.1:80"] {
            let error = text.parse::<WorkerAddress>().unwrap_err().to_string();
            assert!(error.contains("tcp:ADDRESS:PORT"), "{error}");
        }
    }
}
