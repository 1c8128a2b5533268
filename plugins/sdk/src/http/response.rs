//! Responses of handlers, whole or piece by piece.

use crate::bindings::http_handler as raw;
use crate::bindings::http_stream;
use crate::bindings::http_stream::ResponseHead;
use crate::call_site::AtCallSite;
use crate::error::Result;
use crate::json::Json;

/// Bytes that one call of the host accepts.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// The response of a handler: a status, headers and a body.
///
/// Texts, [`Json`] and bytes convert to it with the status 200.
///
/// ```
/// use saggar_plugin::{HttpResponse, Json};
///
/// let missing = HttpResponse::text("no such class").status(404);
/// let page = HttpResponse::html("<h1>Digits</h1>").header("cache-control", "max-age=60");
/// let answer = HttpResponse::from(Json::from(vec![1.0_f64, 2.5]));
/// let picture = HttpResponse::bytes("image/png", vec![0x89, b'P', b'N', b'G']);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct HttpResponse {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    is_streamed: bool,
}

impl HttpResponse {
    /// Returns a response with the status 200 and a body of this media type.
    pub fn bytes(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status: 200, headers, body: body.into(), is_streamed: false }
    }

    /// Returns a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::bytes("text/plain; charset=utf-8", text.into().into_bytes())
    }

    /// Returns a page. Browsers show it without rights to use the server.
    pub fn html(page: impl Into<String>) -> Self {
        Self::bytes("text/html; charset=utf-8", page.into().into_bytes())
    }

    /// Returns a response without a body, such as one with the status 204.
    pub fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), is_streamed: false }
    }

    /// Sets the status, from 200 to 599.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Adds a header. `wit/http-stream.wit` lists those that the host accepts.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends the status, the headers and the body now, and returns the stream for further pieces of the body.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the status or a header, or the client no longer waits.
    #[track_caller]
    pub fn start(self) -> Result<HttpStream> {
        let Self { status, headers, body, .. } = self;
        HttpStream::start(&ResponseHead { status, headers }, &body)
    }

    /// Returns what a handler returns after it has streamed its response.
    fn streamed() -> Self {
        Self { is_streamed: true, ..Self::empty(200) }
    }

    /// Returns the response in the host's form, or `None` if it was streamed.
    pub(super) fn into_raw(self) -> Option<raw::HttpResponse> {
        let Self { status, headers, body, is_streamed } = self;
        (!is_streamed).then_some(raw::HttpResponse { head: ResponseHead { status, headers }, body })
    }
}

impl From<String> for HttpResponse {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for HttpResponse {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<Json> for HttpResponse {
    fn from(value: Json) -> Self {
        Self::bytes("application/json", value.to_string().into_bytes())
    }
}

impl From<Vec<u8>> for HttpResponse {
    fn from(body: Vec<u8>) -> Self {
        Self::bytes("application/octet-stream", body)
    }
}

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
    fn start(head: &ResponseHead, body: &[u8]) -> Result<Self> {
        http_stream::start(head).at_caller()?;
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
            http_stream::send(piece).at_caller()?;
        }
        Ok(())
    }

    /// Returns what the handler returns once it has sent the whole body.
    pub fn finish(self) -> HttpResponse {
        HttpResponse::streamed()
    }
}
