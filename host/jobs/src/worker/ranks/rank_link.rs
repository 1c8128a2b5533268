//! Messages between two ranks: a stream on which each message has a kind and a turn number, so that ranks that get out
//! of step are detected at once.
//!
//! A message is a header of [`HEADER_BYTES`] (turn, kind, length; little-endian) and its payload. A turn is one
//! operation that all ranks do together, so all ranks count the same turns.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use parking_lot::Mutex;
use rustls::Connection;

use super::tls_stream::{OnRankEnd, TlsRankStream};

use crate::limits::{RANK_MESSAGE_BYTES_MAX, RANK_SILENCE_MAX};
use crate::protocol::WorkerEvent;

/// Bytes of a header: turn, kind and length.
const HEADER_BYTES: usize = 17;
/// Maximum bytes allocated before a payload arrives.
const INITIAL_CAPACITY_BYTES_MAX: usize = 64 << 20;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RankMessageKind {
    /// An event that another process would send to the supervisor: usage, or a failure.
    Event,
    /// Whether to save and return.
    Stop,
    /// Whether a checkpoint is due.
    Due,
    /// A checkpoint to resume from.
    Restored,
    /// The version of a published model, or an error.
    Published,
    /// A published version, or an error.
    Opened,
    /// The result of writing an output.
    Written,
    /// One shard's part of a sum.
    Part,
    /// The mean over all shards.
    Mean,
    /// The digest of a rank's state.
    Digest,
    /// The rank has finished.
    End,
    /// The configuration of an attempt, for a rank on another host.
    Config,
}

/// Why the expected message did not arrive.
#[derive(Debug)]
pub(super) enum RankLinkError {
    /// The other rank is gone, or was silent for too long.
    Gone(io::Error),
    /// An event arrived instead.
    Event(WorkerEvent),
    /// Another message arrived.
    UnexpectedMessage(String),
}

/// The stream of a link: a Unix socket on one machine, TLS over TCP between machines.
#[derive(Debug)]
enum RankStream {
    Unix(UnixStream),
    Tls(TlsRankStream),
}

impl RankStream {
    fn write_pieces(&self, pieces: &[&[u8]]) -> io::Result<()> {
        match self {
            RankStream::Unix(stream) => pieces.iter().try_for_each(|piece| (&*stream).write_all(piece)),
            RankStream::Tls(stream) => stream.write_pieces(pieces),
        }
    }
}

impl Read for &RankStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            RankStream::Unix(stream) => (&*stream).read(buffer),
            RankStream::Tls(stream) => stream.read_some(buffer),
        }
    }
}

/// One end of a stream between two ranks.
#[derive(Debug)]
pub(crate) struct RankLink {
    stream: RankStream,
    /// Ensures that one message is sent at a time.
    sending: Mutex<()>,
    /// This process's usage, sent with the next message. The other rank reads nothing while it does work that needs no
    /// messages, and separate reports would fill the socket.
    usage: Mutex<Option<WorkerEvent>>,
}

impl RankLink {
    pub(super) fn new(stream: UnixStream) -> io::Result<RankLink> {
        stream.set_read_timeout(Some(RANK_SILENCE_MAX))?;
        stream.set_write_timeout(Some(RANK_SILENCE_MAX))?;
        Ok(RankLink::over(RankStream::Unix(stream)))
    }

    /// Returns the link over a TLS connection after its handshake. `on_end` is called when the connection has ended.
    pub(super) fn over_tls(socket: TcpStream, connection: Connection, on_end: OnRankEnd) -> io::Result<RankLink> {
        Ok(RankLink::over(RankStream::Tls(TlsRankStream::new(socket, connection, on_end)?)))
    }

    fn over(stream: RankStream) -> RankLink {
        RankLink { stream, sending: Mutex::default(), usage: Mutex::default() }
    }

    /// Returns the link to rank 0, whose socket is the standard output of every other rank.
    ///
    /// # Errors
    /// Fails if standard output is not a socket.
    pub(crate) fn from_stdout() -> io::Result<RankLink> {
        RankLink::new(UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?))
    }

    /// Sends a message whose payload is these pieces, one after the other.
    pub(super) fn send(&self, turn: u64, kind: RankMessageKind, payload: &[&[u8]]) -> io::Result<()> {
        let _turn = self.sending.lock();
        let usage = self.usage.lock().take();
        if let Some(usage) = usage {
            self.write_message(0, RankMessageKind::Event, &[&serde_json::to_vec(&usage).map_err(io::Error::other)?])?;
        }
        self.write_message(turn, kind, payload)
    }

    fn write_message(&self, turn: u64, kind: RankMessageKind, payload: &[&[u8]]) -> io::Result<()> {
        let bytes: usize = payload.iter().map(|piece| piece.len()).sum();
        let mut head = [0; HEADER_BYTES];
        head[..8].copy_from_slice(&turn.to_le_bytes());
        head[8] = kind as u8;
        head[9..].copy_from_slice(&(bytes as u64).to_le_bytes());
        let pieces: Vec<&[u8]> = std::iter::once(&head[..]).chain(payload.iter().copied()).collect();
        self.stream.write_pieces(&pieces)
    }

    /// Forwards an event to rank 0 if rank 0 needs it.
    pub(crate) fn forward_event(&self, event: &WorkerEvent) -> io::Result<()> {
        match event {
            WorkerEvent::Usage(_) => {
                *self.usage.lock() = Some(event.clone());
                Ok(())
            }
            WorkerEvent::Failed { .. } => {
                let json = serde_json::to_vec(event).map_err(io::Error::other)?;
                self.send(0, RankMessageKind::Event, &[&json])
            }
            WorkerEvent::Finished { .. } => self.send(u64::MAX, RankMessageKind::End, &[]),
            // Rank 0 reports the same itself.
            _ => Ok(()),
        }
    }

    /// Waits for a message of this turn and kind.
    pub(super) fn receive(&self, turn: u64, kind: RankMessageKind) -> Result<Vec<u8>, RankLinkError> {
        let mut head = [0; HEADER_BYTES];
        (&self.stream).read_exact(&mut head).map_err(RankLinkError::Gone)?;
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let (found_turn, found_kind, bytes) = (number(&head[..8]), head[8], number(&head[9..]));
        if bytes > RANK_MESSAGE_BYTES_MAX {
            return Err(RankLinkError::UnexpectedMessage(format!("a message of {bytes} bytes")));
        }
        let mut payload =
            Vec::with_capacity(usize::try_from(bytes).map_or(0, |bytes| bytes.min(INITIAL_CAPACITY_BYTES_MAX)));
        let read = (&self.stream).take(bytes).read_to_end(&mut payload).map_err(RankLinkError::Gone)?;
        if (read as u64) < bytes {
            return Err(RankLinkError::Gone(io::ErrorKind::UnexpectedEof.into()));
        }
        if found_kind == RankMessageKind::Event as u8 {
            let event = serde_json::from_slice(&payload)
                .map_err(|error| RankLinkError::UnexpectedMessage(error.to_string()))?;
            return Err(RankLinkError::Event(event));
        }
        if (found_turn, found_kind) != (turn, kind as u8) {
            return Err(RankLinkError::UnexpectedMessage(format!(
                "message {found_kind} of turn {found_turn}, expected message {} of turn {turn}",
                kind as u8
            )));
        }
        Ok(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::WorkerUsage;

    fn pair() -> (RankLink, RankLink) {
        let (a, b) = UnixStream::pair().unwrap();
        (RankLink::new(a).unwrap(), RankLink::new(b).unwrap())
    }

    #[test]
    fn rank_messages_arrive_as_they_were_sent() {
        let (here, there) = pair();
        here.send(3, RankMessageKind::Part, &[b"one", b"", b"two"]).unwrap();
        here.send(4, RankMessageKind::Stop, &[]).unwrap();
        assert_eq!(there.receive(3, RankMessageKind::Part).unwrap(), b"onetwo");
        assert!(there.receive(4, RankMessageKind::Stop).unwrap().is_empty());
    }

    #[test]
    fn a_message_of_another_turn_or_kind_is_an_error() {
        let (here, there) = pair();
        for (turn, kind) in [(4, RankMessageKind::Part), (3, RankMessageKind::Mean)] {
            here.send(3, RankMessageKind::Part, &[b"part"]).unwrap();
            assert!(matches!(there.receive(turn, kind), Err(RankLinkError::UnexpectedMessage(_))), "{turn} {kind:?}");
        }
        let failed = WorkerEvent::Failed { reason: "TRAP".to_owned(), message: "unreachable".to_owned() };
        here.forward_event(&failed).unwrap();
        assert!(matches!(there.receive(5, RankMessageKind::Part), Err(RankLinkError::Event(event)) if event == failed));
        here.forward_event(&WorkerEvent::Progress { step: 1, of: 2 }).unwrap();
        drop(here);
        assert!(
            matches!(there.receive(5, RankMessageKind::Part), Err(RankLinkError::Gone(_))),
            "other events are not forwarded, and the end is"
        );
    }

    #[test]
    fn only_the_newest_usage_is_sent_with_the_next_message() {
        let (here, there) = pair();
        let usage = |samples| WorkerEvent::Usage(WorkerUsage { samples, ..WorkerUsage::default() });
        // More than a socket buffer holds, while the other end reads nothing.
        for samples in 0..100_000 {
            here.forward_event(&usage(samples)).unwrap();
        }
        here.send(1, RankMessageKind::Part, &[b"part"]).unwrap();
        assert!(
            matches!(there.receive(1, RankMessageKind::Part), Err(RankLinkError::Event(event)) if event == usage(99_999))
        );
        assert_eq!(there.receive(1, RankMessageKind::Part).unwrap(), b"part");
    }

    #[test]
    fn a_truncated_message_is_an_error() {
        let (a, b) = UnixStream::pair().unwrap();
        let there = RankLink::new(b).unwrap();
        let mut head = [0; HEADER_BYTES];
        head[8] = RankMessageKind::Stop as u8;
        head[9] = 10;
        (&a).write_all(&head).unwrap();
        (&a).write_all(b"half").unwrap();
        drop(a);
        assert!(matches!(there.receive(0, RankMessageKind::Stop), Err(RankLinkError::Gone(_))));
    }
}
