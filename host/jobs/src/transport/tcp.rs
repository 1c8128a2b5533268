//! TCP, for workers on other machines. Connections are authenticated by the worker's token, but not encrypted.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};

use async_trait::async_trait;
use tokio::net::TcpListener;

use super::{ServerStream, WorkerAddress, WorkerListener, WorkerStream};
use crate::limits::{CONNECT_TIME_MAX, SERVER_SILENCE_MAX};

/// A TCP port for workers.
#[derive(Debug)]
pub struct TcpWorkerListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl TcpWorkerListener {
    /// Listens on `address`; port 0 selects a free port. Must be called in a Tokio runtime.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn bind(address: SocketAddr) -> io::Result<TcpWorkerListener> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(TcpWorkerListener { listener: TcpListener::from_std(listener)?, address })
    }
}

#[async_trait]
impl WorkerListener for TcpWorkerListener {
    fn address(&self) -> WorkerAddress {
        WorkerAddress::Tcp(self.address)
    }

    async fn accept(&self) -> io::Result<Box<dyn WorkerStream>> {
        let (stream, _) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

pub(super) fn connect(address: SocketAddr) -> io::Result<Box<dyn ServerStream>> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX)?;
    stream.set_nodelay(true)?;
    // A network that is cut ends no connection. The server's heartbeats stop, which ends the worker.
    stream.set_read_timeout(Some(SERVER_SILENCE_MAX))?;
    Ok(Box::new(stream))
}

impl ServerStream for TcpStream {
    fn try_clone_stream(&self) -> io::Result<Box<dyn ServerStream>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn shutdown_write(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}
