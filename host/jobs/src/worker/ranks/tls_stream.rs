//! A TLS connection between two ranks, with blocking reads and writes from several threads.
//!
//! A separate thread reads the socket, so the end of a connection is noticed although the rank computes. It reads ahead
//! without a limit: the ranks send in turns, so at most the messages of one turn and a state wait.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::Connection;
use socket2::{SockRef, TcpKeepalive};

use crate::limits::{RANK_SILENCE_MAX, RANK_UNREACHABLE_MAX};

/// Bytes of a read from the socket.
const READ_BYTES: usize = 256 << 10;
/// Bytes that are encrypted before they are written to the socket.
const WRITE_BYTES: usize = 256 << 10;
/// Time without traffic after which the other machine is asked whether it is still there, and between two questions.
const PROBE_INTERVAL: Duration = Duration::from_secs(3);

/// Called when the connection has ended.
pub(super) type OnRankEnd = Box<dyn FnOnce() + Send>;

/// One end of a TLS connection. Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct TlsRankStream {
    connection: Arc<Mutex<Connection>>,
    writer: Mutex<TcpStream>,
    reader: Mutex<PlaintextReader>,
}

/// What was received and not read yet.
#[derive(Debug)]
struct PlaintextReader {
    chunks: Receiver<io::Result<Vec<u8>>>,
    current: Vec<u8>,
    read: usize,
}

/// Makes the system notice within [`RANK_UNREACHABLE_MAX`] that the other machine is gone or cut off.
///
/// # Errors
/// The operating system's error.
pub(super) fn detect_unreachable(socket: &impl std::os::fd::AsFd) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(PROBE_INTERVAL).with_interval(PROBE_INTERVAL);
    let probes = (RANK_UNREACHABLE_MAX.as_secs() / PROBE_INTERVAL.as_secs()).saturating_sub(1);
    socket.set_tcp_keepalive(&keepalive.with_retries(u32::try_from(probes).unwrap_or(1)))?;
    // Probes are sent only while nothing waits for an acknowledgement.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(RANK_UNREACHABLE_MAX))?;
    Ok(())
}

impl TlsRankStream {
    /// Takes over a connection after its handshake. `on_end` is called by the thread that reads it.
    ///
    /// # Errors
    /// The operating system's error.
    pub(super) fn new(socket: TcpStream, connection: Connection, on_end: OnRankEnd) -> io::Result<TlsRankStream> {
        socket.set_nonblocking(false)?;
        detect_unreachable(&socket)?;
        socket.set_write_timeout(Some(RANK_SILENCE_MAX))?;
        let connection = Arc::new(Mutex::new(connection));
        let (sender, chunks) = mpsc::channel();
        let (reading, decrypting) = (socket.try_clone()?, Arc::clone(&connection));
        let read = move || {
            if let Err(error) = read_plaintext(reading, &decrypting, &sender) {
                let _ = sender.send(Err(error));
            }
            drop(sender);
            on_end();
        };
        std::thread::Builder::new().name("rank link".to_owned()).spawn(read)?;
        let reader = Mutex::new(PlaintextReader { chunks, current: Vec::new(), read: 0 });
        Ok(TlsRankStream { connection, writer: Mutex::new(socket), reader })
    }

    /// Writes pieces one after the other.
    ///
    /// # Errors
    /// An I/O error if the other rank is gone or does not read.
    pub(super) fn write_pieces(&self, pieces: &[&[u8]]) -> io::Result<()> {
        let mut socket = self.writer.lock();
        let mut ciphertext = Vec::new();
        for piece in pieces.iter().flat_map(|piece| piece.chunks(WRITE_BYTES)) {
            self.encrypt(piece, &mut ciphertext)?;
            if ciphertext.len() >= WRITE_BYTES {
                socket.write_all(&ciphertext)?;
                ciphertext.clear();
            }
        }
        socket.write_all(&ciphertext)
    }

    fn encrypt(&self, mut piece: &[u8], ciphertext: &mut Vec<u8>) -> io::Result<()> {
        let mut connection = self.connection.lock();
        while !piece.is_empty() {
            let accepted = connection.writer().write(piece)?;
            piece = &piece[accepted..];
            while connection.wants_write() {
                connection.write_tls(ciphertext)?;
            }
        }
        Ok(())
    }

    /// Reads some bytes; 0 after the end. Waits at most [`RANK_SILENCE_MAX`].
    ///
    /// # Errors
    /// The error that ended the connection; `TimedOut`.
    pub(super) fn read_some(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut reader = self.reader.lock();
        while reader.read == reader.current.len() {
            reader.current = match reader.chunks.recv_timeout(RANK_SILENCE_MAX) {
                Ok(chunk) => chunk?,
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
                Err(RecvTimeoutError::Timeout) => return Err(io::ErrorKind::TimedOut.into()),
            };
            reader.read = 0;
        }
        let unread = &reader.current[reader.read..];
        let bytes = unread.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&unread[..bytes]);
        reader.read += bytes;
        Ok(bytes)
    }
}

impl Drop for TlsRankStream {
    fn drop(&mut self) {
        // The thread that reads has another handle of the socket.
        let _ = self.writer.lock().shutdown(Shutdown::Both);
    }
}

/// Reads and decrypts until the connection ends.
fn read_plaintext(
    mut socket: TcpStream,
    connection: &Mutex<Connection>,
    chunks: &Sender<io::Result<Vec<u8>>>,
) -> io::Result<()> {
    // The handshake can have received the first bytes.
    let mut is_open = forward_plaintext(&[], connection, chunks)?;
    let mut ciphertext = vec![0; READ_BYTES];
    while is_open {
        let read = match socket.read(&mut ciphertext) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended"));
        }
        is_open = forward_plaintext(&ciphertext[..read], connection, chunks)?;
    }
    Ok(())
}

/// Decrypts what was received and sends it on. Returns `false` if nothing follows, or nobody reads it.
fn forward_plaintext(
    mut received: &[u8],
    connection: &Mutex<Connection>,
    chunks: &Sender<io::Result<Vec<u8>>>,
) -> io::Result<bool> {
    loop {
        let (plaintext, has_closed) = decrypt(&mut received, &mut connection.lock())?;
        if has_closed || !plaintext.is_empty() && chunks.send(Ok(plaintext)).is_err() {
            return Ok(false);
        }
        if received.is_empty() {
            return Ok(true);
        }
    }
}

/// Decrypts the first received bytes. Returns the plaintext, and whether it is the last.
fn decrypt(received: &mut &[u8], connection: &mut Connection) -> io::Result<(Vec<u8>, bool)> {
    if !received.is_empty() {
        connection.read_tls(received)?;
    }
    let state = connection.process_new_packets().map_err(io::Error::other)?;
    let mut plaintext = vec![0; state.plaintext_bytes_to_read()];
    connection.reader().read_exact(&mut plaintext)?;
    Ok((plaintext, state.peer_has_closed()))
}
