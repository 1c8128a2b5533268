//! Response bodies streamed from files.

use std::io::{self, Read};

use axum::body::{Body, Bytes};
use futures::stream;

use crate::limits::OUTPUT_PIECE_BYTES;

/// Returns a body of the next `bytes` bytes of `reader`. If the reader ends early, the response is cut off, which the
/// client notices.
pub(crate) fn stream_body(reader: impl Read + Send + 'static, bytes: u64) -> Body {
    Body::from_stream(stream::try_unfold((reader, bytes), read_chunk))
}

/// Reads the next chunk, with `left` bytes remaining. May wait for the disk.
async fn read_chunk<R: Read + Send + 'static>((mut reader, left): (R, u64)) -> io::Result<Option<(Bytes, (R, u64))>> {
    if left == 0 {
        return Ok(None);
    }
    let read = move || {
        let mut bytes = Vec::new();
        Read::take(&mut reader, left.min(OUTPUT_PIECE_BYTES)).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the file ended {left} bytes before the end of the response"),
            ));
        }
        let left = left - bytes.len() as u64;
        Ok(Some((bytes.into(), (reader, left))))
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}
