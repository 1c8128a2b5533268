//! Unix sockets. On Linux their names are abstract: they are in no directory, so nothing is left of a server that was
//! killed, and a long path of the state directory is no problem. Other systems have a file in the temporary directory.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{SocketAddr, UnixStream};

use async_trait::async_trait;
use tokio::net::UnixListener;

use super::{ServerStream, WorkerAddress, WorkerListener, WorkerStream};

/// A Unix socket for the workers of this machine. It refuses processes of other users.
#[derive(Debug)]
pub struct UnixWorkerListener {
    listener: UnixListener,
    name: String,
}

impl UnixWorkerListener {
    /// Listens on a new socket. Must be called in a Tokio runtime.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn bind() -> io::Result<UnixWorkerListener> {
        let name = format!("saggar-workers-{}", saggar_store::random_hex::<8>());
        let listener = std::os::unix::net::UnixListener::bind_addr(&socket_address(&name)?)?;
        listener.set_nonblocking(true)?;
        Ok(UnixWorkerListener { listener: UnixListener::from_std(listener)?, name })
    }
}

#[async_trait]
impl WorkerListener for UnixWorkerListener {
    fn address(&self) -> WorkerAddress {
        WorkerAddress::Unix(self.name.clone())
    }

    async fn accept(&self) -> io::Result<Box<dyn WorkerStream>> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let user = stream.peer_cred()?.uid();
            if user == rustix::process::geteuid().as_raw() {
                return Ok(Box::new(stream));
            }
            tracing::warn!(user, "a process of another user connected as a worker and was refused");
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Drop for UnixWorkerListener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(std::env::temp_dir().join(&self.name));
    }
}

#[cfg(target_os = "linux")]
fn socket_address(name: &str) -> io::Result<SocketAddr> {
    <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn socket_address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_pathname(std::env::temp_dir().join(name))
}

pub(super) fn connect(name: &str) -> io::Result<Box<dyn ServerStream>> {
    Ok(Box::new(UnixStream::connect_addr(&socket_address(name)?)?))
}

impl ServerStream for UnixStream {
    fn try_clone_stream(&self) -> io::Result<Box<dyn ServerStream>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn shutdown_write(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}
