//! Listeners for TCP ports and socket files.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixSocket, UnixStream};

use super::activity::PeerAddress;
use super::tls::TlsCertificates;
use crate::access::{Exposure, ListenPolicy};
use crate::limits::CONNECTIONS_MAX;

/// The file mode of a socket file: only its owner can open it.
const SOCKET_MODE: u32 = 0o600;

/// A listener for connections.
#[derive(Debug)]
pub struct ServerListener {
    socket: ListenerSocket,
    door: ListenPolicy,
    certificates: Option<TlsCertificates>,
}

#[derive(Debug)]
enum ListenerSocket {
    Tcp(TcpListener),
    /// The file is `None` if another process, such as systemd, created it and will remove it.
    Unix(UnixListener, #[expect(dead_code, reason = "its removal is in `drop`")] Option<SocketFile>),
}

/// An accepted connection.
#[derive(Debug)]
pub(super) enum AcceptedConnection {
    Tcp(TcpStream, PeerAddress),
    Unix(UnixStream),
}

impl AcceptedConnection {
    /// Returns the peer, or `None` for a socket file, which only its owner can open.
    pub(super) fn peer(&self) -> Option<PeerAddress> {
        match self {
            AcceptedConnection::Tcp(_, peer) => Some(*peer),
            AcceptedConnection::Unix(_) => None,
        }
    }
}

impl ServerListener {
    /// Listens on a port; 0 selects a free one. With certificates, the port accepts only TLS. `requires_key` determines
    /// whether requests need a key.
    ///
    /// # Errors
    /// Returns the system's error, for example if the port is taken.
    pub async fn tcp(
        address: SocketAddr,
        certificates: Option<TlsCertificates>,
        guarded: bool,
    ) -> io::Result<ServerListener> {
        Ok(ServerListener::on_port(TcpListener::bind(address).await?, address, certificates, guarded))
    }

    /// Accepts connections of a port that another process opened, such as systemd.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn inherited_tcp(
        socket: std::net::TcpListener,
        certificates: Option<TlsCertificates>,
        guarded: bool,
    ) -> io::Result<ServerListener> {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(ServerListener::on_port(TcpListener::from_std(socket)?, address, certificates, guarded))
    }

    fn on_port(
        socket: TcpListener,
        address: SocketAddr,
        certificates: Option<TlsCertificates>,
        guarded: bool,
    ) -> ServerListener {
        let reach = if address.ip().to_canonical().is_loopback() { Exposure::Loopback } else { Exposure::Network };
        ServerListener {
            socket: ListenerSocket::Tcp(socket),
            door: ListenPolicy { exposure: reach, requires_key: guarded },
            certificates,
        }
    }

    /// Listens on a socket file that only this user can open. The file of a server that has exited is replaced. The
    /// file is removed with the listener.
    ///
    /// # Errors
    /// Returns `AddrInUse` if a server answers on the file, `AlreadyExists` if the path is not a socket, and the
    /// system's errors.
    pub fn unix(path: &Path, guarded: bool) -> io::Result<ServerListener> {
        let bound = match bind_socket(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale_socket(path)?;
                bind_socket(path)?
            }
            bound => bound?,
        };
        let file = SocketFile::from_path(path)?;
        Ok(ServerListener {
            socket: ListenerSocket::Unix(bound, Some(file)),
            door: ListenPolicy { exposure: Exposure::UnixSocket, requires_key: guarded },
            certificates: None,
        })
    }

    /// Accepts connections of a socket file that another process created, such as systemd. That process decides who can
    /// open the file.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn inherited_unix(socket: std::os::unix::net::UnixListener, guarded: bool) -> io::Result<ServerListener> {
        socket.set_nonblocking(true)?;
        Ok(ServerListener {
            socket: ListenerSocket::Unix(UnixListener::from_std(socket)?, None),
            door: ListenPolicy { exposure: Exposure::UnixSocket, requires_key: guarded },
            certificates: None,
        })
    }

    /// Returns the policy for requests of this listener.
    pub(crate) fn listen_policy(&self) -> ListenPolicy {
        self.door
    }

    /// Returns the certificates if the listener uses TLS.
    pub(crate) fn certificates(&self) -> Option<&TlsCertificates> {
        self.certificates.as_ref()
    }

    /// Returns the URL of the listener: `http://127.0.0.1:5000`, `unix:/run/saggar.sock`.
    pub fn url(&self) -> String {
        match &self.socket {
            ListenerSocket::Tcp(listener) => {
                let scheme = if self.certificates.is_some() { "https" } else { "http" };
                let address = listener.local_addr().map_or_else(|error| error.to_string(), |at| at.to_string());
                format!("{scheme}://{address}")
            }
            ListenerSocket::Unix(listener, _) => {
                let address = listener.local_addr();
                let path = address.as_ref().ok().and_then(|address| address.as_pathname());
                format!("unix:{}", path.unwrap_or(Path::new("?")).display())
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<AcceptedConnection> {
        match &self.socket {
            ListenerSocket::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok(AcceptedConnection::Tcp(stream, PeerAddress::from_ip(address.ip())))
            }
            ListenerSocket::Unix(listener, _) => {
                listener.accept().await.map(|(stream, _)| AcceptedConnection::Unix(stream))
            }
        }
    }
}

fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    // Linux creates the file with the socket's own mode, so no other user can ever open it. Other systems refuse this
    // call; there the file's mode is restricted just after it is created.
    let _ = rustix::fs::fchmod(&socket, Mode::from_raw_mode(SOCKET_MODE as _));
    socket.bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    socket.listen(u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX))
}

/// Removes the socket file of a server that has exited.
fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let refuse = |kind, what: &str| Err(io::Error::new(kind, format!("{}: {what}", path.display())));
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return refuse(io::ErrorKind::AlreadyExists, "the path exists and is not a socket");
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => refuse(io::ErrorKind::AddrInUse, "a server is running on this socket"),
    }
}

/// A socket file created by this process. Dropping it removes the file, unless another one has replaced it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn from_path(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: std::path::absolute(path)?, identity: file_identity(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if file_identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file_identity(path: &Path) -> io::Result<(u64, u64)> {
    let meta = std::fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_file_is_private_and_removed_with_its_server() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let listener = ServerListener::unix(&path, false).unwrap();
        assert_eq!(listener.url(), format!("unix:{}", path.display()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let error = ServerListener::unix(&path, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists(), "the file of a running server stays");
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_other_files_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        // A listener of the standard library leaves its file behind, like a killed server.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(ServerListener::unix(&path, false).unwrap());
        let file = directory.path().join("precious");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(ServerListener::unix(&file, false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
    }

    #[tokio::test]
    async fn a_socket_of_another_server_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let first = ServerListener::unix(&path, false).unwrap();
        std::fs::rename(&path, directory.path().join("moved.sock")).unwrap();
        let second = ServerListener::unix(&path, false).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
