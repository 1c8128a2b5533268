//! Content encodings: decompresses request bodies, and compresses responses if the client accepts that.

use std::io::{self, Read, Write};

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::buffer_growth::grown_capacity;
use crate::error::ApiError;
use crate::limits::{COMPRESS_BYTES_MIN, INLINE_BYTES_MAX};

/// A compression of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentEncoding {
    Gzip,
    /// A zlib stream, which HTTP calls `deflate`.
    Deflate,
}

impl ContentEncoding {
    /// Returns the encoding of this name, or `None` for `identity` and unknown names.
    pub(crate) fn from_name(name: &str) -> Option<ContentEncoding> {
        match name.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Some(ContentEncoding::Gzip),
            "deflate" => Some(ContentEncoding::Deflate),
            _ => None,
        }
    }

    /// Returns the name in headers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ContentEncoding::Gzip => "gzip",
            ContentEncoding::Deflate => "deflate",
        }
    }

    /// Returns the encoding of a request's body, or `None` if it is not compressed.
    ///
    /// # Errors
    /// Returns `ContentEncoding` for an unknown encoding or a combination of several.
    pub(crate) fn from_request_headers(headers: &HeaderMap) -> Result<Option<ContentEncoding>, ApiError> {
        let mut declared = headers.get_all(header::CONTENT_ENCODING).iter();
        let Some(first) = declared.next() else { return Ok(None) };
        let text = String::from_utf8_lossy(first.as_bytes());
        match ContentEncoding::from_name(&text) {
            _ if declared.next().is_some() => Err(ApiError::Coding { got: "several".to_owned() }),
            Some(coding) => Ok(Some(coding)),
            None if text.trim().eq_ignore_ascii_case("identity") => Ok(None),
            None => Err(ApiError::Coding { got: text.chars().take(80).collect() }),
        }
    }

    /// Returns the supported encoding that the client prefers for a response, or `None` if it accepts none of them.
    pub(crate) fn from_accept_encoding(headers: &HeaderMap) -> Option<ContentEncoding> {
        let lines = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
        let mut best: Option<(ContentEncoding, f32)> = None;
        for item in lines.flat_map(|line| line.split(',')) {
            let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
            let quality = parameters.trim().strip_prefix("q=").map_or(1.0, |q| q.trim().parse().unwrap_or(0.0));
            if let Some(coding) = ContentEncoding::from_name(name)
                && quality > best.map_or(0.0, |(_, best)| best)
            {
                best = Some((coding, quality));
            }
        }
        best.map(|(coding, _)| coding)
    }

    /// Decompresses the whole of `bytes`. Calls `reserve` with the total memory of the result before it is allocated.
    ///
    /// # Errors
    /// Returns `TooLarge` as soon as the result exceeds `bytes_max`, `BodyBroken` if the stream is invalid, truncated
    /// or followed by more bytes, and the errors of `reserve`.
    pub(crate) fn decompress(
        self,
        bytes: &[u8],
        bytes_max: usize,
        reserve: impl FnMut(usize) -> Result<(), ApiError>,
    ) -> Result<Vec<u8>, ApiError> {
        let mut expanded = DecompressedBody { bytes: Vec::new(), bytes_max, name: self.name(), reserve };
        match self {
            ContentEncoding::Gzip => expanded.read_to_end(&mut MultiGzDecoder::new(bytes))?,
            ContentEncoding::Deflate => {
                let mut decoder = ZlibDecoder::new(bytes);
                expanded.read_to_end(&mut decoder)?;
                if !decoder.get_ref().is_empty() {
                    return Err(expanded.broken_body_error("bytes follow its end"));
                }
            }
        }
        Ok(expanded.bytes)
    }

    /// Compresses `bytes`: on this thread if they are few, else on a blocking thread.
    ///
    /// # Errors
    /// Returns `Internal` if compressing fails.
    pub(crate) async fn compress_bytes(self, bytes: Bytes) -> Result<Vec<u8>, ApiError> {
        let internal = |cause: String| ApiError::Internal { cause };
        let compressed = if bytes.len() <= INLINE_BYTES_MAX {
            self.compress(&bytes)
        } else {
            let work = tokio::task::spawn_blocking(move || self.compress(&bytes)).await;
            work.map_err(|error| internal(format!("compressing: {error}")))?
        };
        compressed.map_err(|error| internal(error.to_string()))
    }

    fn compress(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let compressed = Vec::with_capacity(bytes.len() / 2);
        match self {
            ContentEncoding::Gzip => {
                let mut encoder = GzEncoder::new(compressed, Compression::fast());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
            ContentEncoding::Deflate => {
                let mut encoder = ZlibEncoder::new(compressed, Compression::fast());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
        }
    }
}

/// A body that is being decompressed.
struct DecompressedBody<R> {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// The encoding's name.
    name: &'static str,
    reserve: R,
}

impl<R: FnMut(usize) -> Result<(), ApiError>> DecompressedBody<R> {
    /// Decompresses to the end of the stream.
    fn read_to_end(&mut self, decoder: &mut impl Read) -> Result<(), ApiError> {
        let mut piece = [0; 16 << 10];
        loop {
            let count = decoder.read(&mut piece).map_err(|error| self.broken_body_error(error))?;
            if count == 0 {
                return Ok(());
            }
            let length = self.bytes.len() + count;
            if length > self.bytes_max {
                return Err(ApiError::TooLarge { bytes_max: self.bytes_max });
            }
            if length > self.bytes.capacity() {
                let capacity = grown_capacity(self.bytes.capacity(), length, self.bytes_max);
                (self.reserve)(capacity)?;
                self.bytes.reserve_exact(capacity - self.bytes.len());
            }
            self.bytes.extend_from_slice(&piece[..count]);
        }
    }

    fn broken_body_error(&self, reason: impl std::fmt::Display) -> ApiError {
        ApiError::BodyBroken { reason: format!("no whole {} stream: {reason}", self.name) }
    }
}

/// Compresses the response if it is large enough to benefit. Its body must be complete in memory.
///
/// # Errors
/// Returns `Internal` if compressing fails.
pub(crate) async fn compress_response(
    mut response: Response,
    coding: Option<ContentEncoding>,
) -> Result<Response, ApiError> {
    let Some(coding) = coding else { return Ok(response) };
    let body = std::mem::take(response.body_mut());
    let whole = to_bytes(body, usize::MAX).await;
    let bytes = whole.map_err(|error| ApiError::Internal { cause: error.to_string() })?;
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if bytes.len() < COMPRESS_BYTES_MIN {
        *response.body_mut() = Body::from(bytes);
        return Ok(response);
    }
    *response.body_mut() = Body::from(coding.compress_bytes(bytes).await?);
    let name: HeaderName = header::CONTENT_ENCODING;
    response.headers_mut().insert(name, HeaderValue::from_static(coding.name()));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn the_most_preferred_content_encoding_is_chosen() {
        let accepted = |values: &[&str]| ContentEncoding::from_accept_encoding(&headers("accept-encoding", values));
        assert_eq!(accepted(&[]), None);
        assert_eq!(accepted(&["gzip, deflate, br, zstd"]), Some(ContentEncoding::Gzip));
        assert_eq!(accepted(&["deflate;q=1.0, gzip; q=0.5"]), Some(ContentEncoding::Deflate));
        assert_eq!(accepted(&["br", "x-GZIP"]), Some(ContentEncoding::Gzip));
        assert_eq!(accepted(&["gzip;q=0, identity"]), None);
        assert_eq!(accepted(&["gzip;q=none, br, *"]), None);
    }

    #[test]
    fn request_bodies_have_at_most_one_known_content_encoding() {
        let declared = |values: &[&str]| ContentEncoding::from_request_headers(&headers("content-encoding", values));
        assert_eq!(declared(&[]).unwrap(), None);
        assert_eq!(declared(&["identity"]).unwrap(), None);
        assert_eq!(declared(&["GZip"]).unwrap(), Some(ContentEncoding::Gzip));
        assert_eq!(declared(&["deflate"]).unwrap(), Some(ContentEncoding::Deflate));
        for bad in [&["br"][..], &["gzip, gzip"], &["gzip", "gzip"], &[""]] {
            assert!(matches!(declared(bad), Err(ApiError::Coding { .. })), "{bad:?}");
        }
    }

    #[test]
    fn decompression_stops_at_the_size_limit_and_refuses_broken_streams() {
        let expand = |coding: ContentEncoding, bytes: &[u8], bytes_max| coding.decompress(bytes, bytes_max, |_| Ok(()));
        let text = b"seven bytes, and more of them".repeat(100);
        for coding in [ContentEncoding::Gzip, ContentEncoding::Deflate] {
            let packed = coding.compress(&text).unwrap();
            assert_eq!(expand(coding, &packed, text.len()).unwrap(), text);
            assert!(matches!(expand(coding, &packed, text.len() - 1), Err(ApiError::TooLarge { .. })), "{coding:?}");
            let broken = |bytes: &[u8]| matches!(expand(coding, bytes, 1 << 20), Err(ApiError::BodyBroken { .. }));
            assert!(broken(&packed[..packed.len() - 1]) && broken(b"") && broken(b"text"), "{coding:?}");
            assert!(broken(&[&packed[..], b"more"].concat()), "{coding:?}");
        }
        let bomb = ContentEncoding::Gzip.compress(&vec![0; 64 << 20]).unwrap();
        assert!(matches!(
            expand(ContentEncoding::Gzip, &bomb, 1 << 20),
            Err(ApiError::TooLarge { bytes_max: 0x10_0000 })
        ));
    }
}
