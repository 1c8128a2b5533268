//! Reads lines of limited length from a stream.

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The result of reading a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineRead {
    /// The line is complete, without its line end.
    Complete,
    /// The line has the maximum number of bytes, without an end.
    TooLong,
    /// The stream has ended.
    EndOfStream,
}

/// A stream of lines, which can be closed.
#[derive(Debug)]
pub(crate) struct LineStream<R> {
    reader: Option<R>,
    line: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> LineStream<R> {
    /// Returns a stream of the lines of `reader`; closed if `None`.
    pub(crate) fn new(reader: Option<R>) -> LineStream<R> {
        LineStream { reader, line: Vec::new() }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.reader.is_some()
    }

    pub(crate) fn close(&mut self) {
        self.reader = None;
    }

    /// Reads the next line, of at most `bytes_max` bytes, for [`LineStream::take_line`]. Never returns if the stream is
    /// closed. Can be dropped and called again without losing bytes.
    pub(crate) async fn read(&mut self, bytes_max: usize) -> LineRead {
        match &mut self.reader {
            Some(reader) => read_line(reader, &mut self.line, bytes_max).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the line that was read last, or its part before the end of the stream.
    pub(crate) fn take_line(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.line)
    }
}

/// Appends one line of at most `bytes_max` bytes to `line`. May be dropped between reads without losing bytes: they are
/// in `line`.
pub(crate) async fn read_line(
    reader: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    bytes_max: usize,
) -> LineRead {
    let room = bytes_max.saturating_sub(line.len()) as u64;
    match reader.take(room).read_until(b'\n', line).await {
        Ok(_) if line.last() == Some(&b'\n') => {
            line.pop();
            LineRead::Complete
        }
        Ok(_) if line.len() >= bytes_max => LineRead::TooLong,
        Ok(_) | Err(_) => LineRead::EndOfStream,
    }
}
