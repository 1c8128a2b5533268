//! The bytes of a connection: the first ones can be looked at before they are read, and a client that takes none of what
//! it is sent is given up.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How an HTTP/2 connection begins when the client knows that the server speaks it (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose first bytes were looked at.
#[derive(Debug)]
pub(super) struct Stream<S> {
    inner: S,
    /// What was looked at, from `read_from` to `looked`.
    first: [u8; PREFACE.len()],
    read_from: usize,
    looked: usize,
    /// How long a write may wait, and the wait that goes on.
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + Unpin> Stream<S> {
    /// Gives a client up that takes no byte for `patience`.
    pub(super) fn new(inner: S, patience: Duration) -> Stream<S> {
        Stream { inner, first: [0; PREFACE.len()], read_from: 0, looked: 0, patience, waiting: None }
    }

    /// Whether it begins as HTTP/2 does. Waits until that is certain.
    pub(super) async fn begins_http2(&mut self) -> io::Result<bool> {
        loop {
            let seen = &self.first[..self.looked];
            if seen != &PREFACE[..self.looked] {
                return Ok(false);
            }
            if self.looked == PREFACE.len() {
                return Ok(true);
            }
            match self.inner.read(&mut self.first[self.looked..]).await? {
                0 => return Ok(false),
                count => self.looked += count,
            }
        }
    }
}

impl<S> Stream<S> {
    /// What a write comes to that cannot go on now.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing of its answer")))
    }

    /// The outcome of a write, and no more waiting where there is one.
    fn written<T>(&mut self, outcome: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if outcome.is_pending() {
            return self.wait(context);
        }
        self.waiting = None;
        outcome
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.read_from < this.looked {
            let count = (this.looked - this.read_from).min(buffer.remaining());
            buffer.put_slice(&this.first[this.read_from..this.read_from + count]);
            this.read_from += count;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.written(outcome, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(context, bytes);
        self.written(outcome, context)
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn the_first_bytes_are_looked_at_and_then_read() {
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
                    let mut stream = Stream::new(server, Duration::from_secs(60));
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
    async fn a_client_that_takes_nothing_is_given_up() {
        let (_client, server) = tokio::io::duplex(8);
        let mut stream = Stream::new(server, Duration::from_millis(20));
        let error = stream.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_client_that_takes_a_little_now_and_then_is_not() {
        let (mut client, server) = tokio::io::duplex(8);
        let patience = Duration::from_millis(500);
        let mut stream = Stream::new(server, patience);
        let take = async {
            let mut read = [0; 8];
            for _ in 0..8 {
                sleep(patience / 5).await;
                client.read_exact(&mut read).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[0; 64]), take);
        written.unwrap();
    }
}
