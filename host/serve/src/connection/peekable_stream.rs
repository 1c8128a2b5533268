//! A stream whose first bytes can be peeked at, and whose writes fail if the client stops reading.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::response_tracking::time_allowance;

/// The preface of an HTTP/2 connection with prior knowledge (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream that can buffer its first bytes.
#[derive(Debug)]
pub(super) struct PeekableStream<S> {
    inner: S,
    /// The peeked bytes, from `read_from` to `peeked_bytes`.
    peek_buffer: [u8; PREFACE.len()],
    read_from: usize,
    peeked_bytes: usize,
    /// How long writes may be blocked, in addition to the time that the bytes taken allow.
    patience: Duration,
    /// How long writes have been blocked beyond that allowance.
    debt: Duration,
    waiting: Option<BlockedWrite>,
}

/// A blocked write.
#[derive(Debug)]
struct BlockedWrite {
    began: Instant,
    end: Pin<Box<Sleep>>,
}

impl<S: AsyncRead + Unpin> PeekableStream<S> {
    /// Creates a stream that fails if writes are blocked for `patience` longer than the bytes taken allow
    /// (`ANSWER_BYTES_PER_SECOND_MIN`), because the client reads nothing or very slowly.
    pub(super) fn new(inner: S, patience: Duration) -> PeekableStream<S> {
        PeekableStream {
            inner,
            peek_buffer: [0; PREFACE.len()],
            read_from: 0,
            peeked_bytes: 0,
            patience,
            debt: Duration::ZERO,
            waiting: None,
        }
    }

    /// Returns whether the stream begins with the HTTP/2 preface. Waits until this is certain.
    pub(super) async fn begins_http2(&mut self) -> io::Result<bool> {
        loop {
            let seen = &self.peek_buffer[..self.peeked_bytes];
            if seen != &PREFACE[..self.peeked_bytes] {
                return Ok(false);
            }
            if self.peeked_bytes == PREFACE.len() {
                return Ok(true);
            }
            match self.inner.read(&mut self.peek_buffer[self.peeked_bytes..]).await? {
                0 => return Ok(false),
                count => self.peeked_bytes += count,
            }
        }
    }
}

impl<S> PeekableStream<S> {
    /// Polls the timeout of a write that is blocked.
    fn poll_write_timeout(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let left = self.patience.saturating_sub(self.debt);
        let begin = || BlockedWrite { began: Instant::now(), end: Box::pin(sleep(left)) };
        ready!(self.waiting.get_or_insert_with(begin).end.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads its response too slowly")))
    }

    /// Returns the result of a write; if it completed, updates the debt and clears the blocked write.
    fn settle_write(&mut self, outcome: Poll<io::Result<usize>>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Poll::Ready(result) = outcome else { return self.poll_write_timeout(context) };
        let waited = self.waiting.take().map_or(Duration::ZERO, |wait| wait.began.elapsed());
        if waited > Duration::ZERO || self.debt > Duration::ZERO {
            let paid = result.as_ref().map_or(Duration::ZERO, |bytes| time_allowance(*bytes));
            self.debt = (self.debt + waited).saturating_sub(paid);
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PeekableStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.read_from < this.peeked_bytes {
            let count = (this.peeked_bytes - this.read_from).min(buffer.remaining());
            buffer.put_slice(&this.peek_buffer[this.read_from..this.read_from + count]);
            this.read_from += count;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PeekableStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.settle_write(outcome, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(context, bytes);
        self.settle_write(outcome, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// Disables Nagle's algorithm: responses are written whole, and waiting to fill a packet would only delay them.
pub(super) fn set_no_delay(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::limits::ANSWER_BYTES_PER_SECOND_MIN;

    #[tokio::test]
    async fn peeked_bytes_are_still_read() {
        let whole = [&PREFACE[..], b"rest"].concat();
        for (sent, http2) in [
            (&whole[..], true),
            (b"POST /predict HTTP/1.1\r\n\r\n", false),
            (b"PRI * HTTP/1.1\r\n\r\nxxxxxxxx", false),
            (b"P", false),
            (b"", false),
        ] {
            for piece_bytes in [1, 7, 100] {
                let (mut client, server) = tokio::io::duplex(8);
                let send = async {
                    for piece in sent.chunks(piece_bytes) {
                        client.write_all(piece).await.unwrap();
                    }
                    drop(client);
                };
                let read = async {
                    let mut stream = PeekableStream::new(server, Duration::from_secs(60));
                    let found = stream.begins_http2().await.unwrap();
                    let mut read = Vec::new();
                    stream.read_to_end(&mut read).await.unwrap();
                    (found, read)
                };
                let ((), (found, read)) = tokio::join!(send, read);
                assert_eq!((found, &read[..]), (http2, sent));
            }
        }
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_times_out() {
        let (_client, server) = tokio::io::duplex(8);
        let mut stream = PeekableStream::new(server, Duration::from_millis(20));
        let error = stream.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// Reads 30 chunks of `piece_bytes`, twenty of them within the patience. Returns whether everything was written.
    async fn read_slowly(piece_bytes: usize) -> bool {
        let (mut client, server) = tokio::io::duplex(piece_bytes);
        let patience = Duration::from_secs(1);
        let mut stream = PeekableStream::new(server, patience);
        let take = async move {
            let mut read = vec![0; piece_bytes];
            for _ in 0..30 {
                sleep(patience / 20).await;
                if client.read_exact(&mut read).await.is_err() {
                    return;
                }
            }
        };
        let whole = vec![0; 30 * piece_bytes];
        let write = async {
            let written = stream.write_all(&whole).await;
            drop(stream);
            written
        };
        let (written, ()) = tokio::join!(write, take);
        written.is_ok()
    }

    #[tokio::test]
    async fn a_slow_but_steady_client_does_not_time_out() {
        assert!(read_slowly(2 * ANSWER_BYTES_PER_SECOND_MIN).await);
    }

    #[tokio::test]
    async fn a_client_that_reads_single_bytes_times_out() {
        assert!(!read_slowly(1).await);
    }
}
