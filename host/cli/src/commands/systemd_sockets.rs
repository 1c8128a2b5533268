//! Sockets that systemd opened for this process, by its protocol of socket activation (sd_listen_fds(3)).
//!
//! systemd holds a socket while the server restarts, so that connections wait and none is refused.

use std::net::SocketAddr;

use listenfd::ListenFd;
use saggar_serve::{ServerListener, TlsCertificates};

use crate::args::{ListenAddress, ServeArgs};
use crate::exit::{self, CliError};

/// A socket that systemd opened.
#[derive(Debug)]
pub(crate) enum SystemdSocket {
    /// A TCP port.
    Tcp(std::net::TcpListener, SocketAddr),
    /// A socket file.
    Unix(std::os::unix::net::UnixListener),
}

impl SystemdSocket {
    /// Takes the sockets out of the environment if `--addr systemd` is given. Later calls find none.
    ///
    /// # Errors
    /// No socket was passed, or one that cannot accept connections.
    pub(crate) fn take(args: &ServeArgs) -> Result<Vec<SystemdSocket>, CliError> {
        if !args.addr.contains(&ListenAddress::Systemd) {
            return Ok(Vec::new());
        }
        let mut passed = ListenFd::from_env();
        if passed.len() == 0 {
            return Err(CliError::invalid("--addr systemd: systemd passed no socket to this process").with_hint(
                "start the unit saggar.socket, or give an address to listen on, such as `saggar serve --addr 127.0.0.1:5000`",
            ));
        }
        (0..passed.len()).map(|index| SystemdSocket::take_one(&mut passed, index)).collect()
    }

    fn take_one(passed: &mut ListenFd, index: usize) -> Result<SystemdSocket, CliError> {
        // Each method refuses a socket of the other kind.
        if let Ok(Some(socket)) = passed.take_tcp_listener(index) {
            let address = socket.local_addr().map_err(|error| unusable_socket(index, &error))?;
            return Ok(SystemdSocket::Tcp(socket, address));
        }
        match passed.take_unix_listener(index) {
            Ok(Some(socket)) => Ok(SystemdSocket::Unix(socket)),
            Ok(None) => Err(unusable_socket(index, &"it was taken before")),
            Err(error) => Err(unusable_socket(index, &error)),
        }
    }

    /// Returns the address if other machines can reach it.
    pub(crate) fn public_address(&self) -> Option<SocketAddr> {
        match self {
            SystemdSocket::Tcp(_, address) => Some(*address).filter(|it| !it.ip().to_canonical().is_loopback()),
            SystemdSocket::Unix(_) => None,
        }
    }

    /// Accepts connections of this socket; TCP ports with TLS if there are certificates.
    pub(crate) fn listen(
        self,
        certificates: Option<TlsCertificates>,
        guarded: bool,
    ) -> Result<ServerListener, CliError> {
        let listener = match self {
            SystemdSocket::Tcp(socket, _) => ServerListener::inherited_tcp(socket, certificates, guarded),
            SystemdSocket::Unix(socket) => ServerListener::inherited_unix(socket, guarded),
        };
        listener.map_err(|error| unusable_socket(0, &error))
    }
}

fn unusable_socket(index: usize, error: &dyn std::fmt::Display) -> CliError {
    let message = format!("socket {index} of systemd cannot accept connections: {error}");
    CliError::new(exit::CONFLICT, "address", message).with_hint(
        "in the socket unit, `ListenStream=` takes an address such as 127.0.0.1:5000 or the path of a socket file",
    )
}
