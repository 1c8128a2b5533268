//! Responses that are sent piece by piece.

use crate::bindings::http_stream as raw;
use crate::call_site::AtCallSite;
use crate::error::Result;

use super::response::HttpResponse;

/// Bytes that one call of the host accepts.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// A response whose body is sent piece by piece. Started by [`HttpResponse::start`].
///
/// ```no_run
/// # use saggar_plugin::*;
/// fn count<P>(_: &P, request: &HttpRequest) -> Result<HttpResponse> {
///     let last: u32 = request.parameter("last")?.parse().unwrap_or(10);
///     let stream = HttpResponse::text("").start()?;
///     for number in 1..=last {
///         stream.send(format!("{number}\n").as_bytes())?; // at the client at once
///     }
///     Ok(stream.finish())
/// }
/// ```
#[derive(Debug)]
#[must_use = "the handler returns `finish()`"]
pub struct HttpStream(());

impl HttpStream {
    /// Sends the head of a response and the first bytes of its body.
    #[track_caller]
    pub(super) fn start(head: &raw::ResponseHead, body: &[u8]) -> Result<Self> {
        raw::start(head).at_caller()?;
        let stream = Self(());
        stream.send(body)?;
        Ok(stream)
    }

    /// Sends bytes of the body. Blocks while the client reads slowly.
    ///
    /// # Errors
    /// Returns `Host` with the code `cancelled` if the client no longer waits; return this error from the handler.
    #[track_caller]
    pub fn send(&self, bytes: &[u8]) -> Result<()> {
        for piece in bytes.chunks(PIECE_BYTES_MAX) {
            raw::send(piece).at_caller()?;
        }
        Ok(())
    }

    /// Returns what the handler returns once it has sent the whole body.
    pub fn finish(self) -> HttpResponse {
        HttpResponse::streamed()
    }
}
