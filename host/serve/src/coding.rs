//! Content codings: bodies that come compressed, and answers that are compressed where the client takes it.

use std::io::{self, Read, Write};

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use flate2::Compression;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::body::grown;
use crate::error::ApiError;
use crate::limits::{COMPRESS_BYTES_MIN, INLINE_BYTES_MAX};

/// A way to compress a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    /// What HTTP calls so: a zlib stream.
    Deflate,
}

impl Coding {
    fn named(name: &str) -> Option<Coding> {
        match name.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Some(Coding::Gzip),
            "deflate" => Some(Coding::Deflate),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
        }
    }

    /// The coding of a request's body; none where it is not compressed.
    ///
    /// # Errors
    /// `Coding` for every other one, and for several on top of each other.
    pub(crate) fn of_body(headers: &HeaderMap) -> Result<Option<Coding>, ApiError> {
        let mut declared = headers.get_all(header::CONTENT_ENCODING).iter();
        let Some(first) = declared.next() else { return Ok(None) };
        let text = String::from_utf8_lossy(first.as_bytes());
        match Coding::named(&text) {
            _ if declared.next().is_some() => Err(ApiError::Coding { got: "several".to_owned() }),
            Some(coding) => Ok(Some(coding)),
            None if text.trim().eq_ignore_ascii_case("identity") => Ok(None),
            None => Err(ApiError::Coding { got: text.chars().take(80).collect() }),
        }
    }

    /// The coding that the client likes most in an answer; none where it names none of ours.
    pub(crate) fn accepted(headers: &HeaderMap) -> Option<Coding> {
        let lines = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
        let mut best: Option<(Coding, f32)> = None;
        for item in lines.flat_map(|line| line.split(',')) {
            let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
            let quality = parameters.trim().strip_prefix("q=").map_or(1.0, |q| q.trim().parse().unwrap_or(0.0));
            if let Some(coding) = Coding::named(name)
                && quality > best.map_or(0.0, |(_, best)| best)
            {
                best = Some((coding, quality));
            }
        }
        best.map(|(coding, _)| coding)
    }

    /// What the whole of `bytes` stands for. `reserve` is called with the memory that the result takes in all, before it
    /// is allocated.
    ///
    /// # Errors
    /// `TooLarge` past `bytes_max`, without making more; `BodyBroken` where it is no such stream, is cut off, or goes on
    /// after its end; those of `reserve`.
    pub(crate) fn expand(
        self,
        bytes: &[u8],
        bytes_max: usize,
        reserve: impl FnMut(usize) -> Result<(), ApiError>,
    ) -> Result<Vec<u8>, ApiError> {
        let mut expanded = Expanded { bytes: Vec::new(), bytes_max, name: self.name(), reserve };
        match self {
            Coding::Gzip => expanded.read(&mut MultiGzDecoder::new(bytes))?,
            Coding::Deflate => {
                let mut decoder = ZlibDecoder::new(bytes);
                expanded.read(&mut decoder)?;
                if !decoder.get_ref().is_empty() {
                    return Err(expanded.broken("bytes follow its end"));
                }
            }
        }
        Ok(expanded.bytes)
    }

    fn compress(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let compressed = Vec::with_capacity(bytes.len() / 2);
        match self {
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(compressed, Compression::fast());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
            Coding::Deflate => {
                let mut encoder = ZlibEncoder::new(compressed, Compression::fast());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
        }
    }
}

/// What a compressed body becomes, piece by piece.
struct Expanded<R> {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// Of the coding.
    name: &'static str,
    reserve: R,
}

impl<R: FnMut(usize) -> Result<(), ApiError>> Expanded<R> {
    /// Reads to the end.
    fn read(&mut self, decoder: &mut impl Read) -> Result<(), ApiError> {
        let mut piece = [0; 16 << 10];
        loop {
            let count = decoder.read(&mut piece).map_err(|error| self.broken(error))?;
            if count == 0 {
                return Ok(());
            }
            let length = self.bytes.len() + count;
            if length > self.bytes_max {
                return Err(ApiError::TooLarge { bytes_max: self.bytes_max });
            }
            if length > self.bytes.capacity() {
                let capacity = grown(self.bytes.capacity(), length, self.bytes_max);
                (self.reserve)(capacity)?;
                self.bytes.reserve_exact(capacity - self.bytes.len());
            }
            self.bytes.extend_from_slice(&piece[..count]);
        }
    }

    fn broken(&self, reason: impl std::fmt::Display) -> ApiError {
        ApiError::BodyBroken { reason: format!("no whole {} stream: {reason}", self.name) }
    }
}

/// The answer in the coding, where it is large enough to be worth it. Its body must be whole in memory already.
///
/// # Errors
/// `Internal`.
pub(crate) async fn compressed(mut response: Response, coding: Option<Coding>) -> Result<Response, ApiError> {
    let Some(coding) = coding else { return Ok(response) };
    let body = std::mem::take(response.body_mut());
    let internal = |cause: String| ApiError::Internal { cause };
    let bytes = to_bytes(body, usize::MAX).await.map_err(|error| internal(error.to_string()))?;
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if bytes.len() < COMPRESS_BYTES_MIN {
        *response.body_mut() = Body::from(bytes);
        return Ok(response);
    }
    let compressed = if bytes.len() <= INLINE_BYTES_MAX {
        coding.compress(&bytes)
    } else {
        let work = tokio::task::spawn_blocking(move || coding.compress(&bytes)).await;
        work.map_err(|error| internal(format!("compressing: {error}")))?
    };
    *response.body_mut() = Body::from(compressed.map_err(|error| internal(error.to_string()))?);
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
    fn the_coding_that_is_liked_most_is_taken() {
        let accepted = |values: &[&str]| Coding::accepted(&headers("accept-encoding", values));
        assert_eq!(accepted(&[]), None);
        assert_eq!(accepted(&["gzip, deflate, br, zstd"]), Some(Coding::Gzip));
        assert_eq!(accepted(&["deflate;q=1.0, gzip; q=0.5"]), Some(Coding::Deflate));
        assert_eq!(accepted(&["br", "x-GZIP"]), Some(Coding::Gzip));
        assert_eq!(accepted(&["gzip;q=0, identity"]), None);
        assert_eq!(accepted(&["gzip;q=none, br, *"]), None);
    }

    #[test]
    fn bodies_come_in_one_known_coding_or_none() {
        let declared = |values: &[&str]| Coding::of_body(&headers("content-encoding", values));
        assert_eq!(declared(&[]).unwrap(), None);
        assert_eq!(declared(&["identity"]).unwrap(), None);
        assert_eq!(declared(&["GZip"]).unwrap(), Some(Coding::Gzip));
        assert_eq!(declared(&["deflate"]).unwrap(), Some(Coding::Deflate));
        for bad in [&["br"][..], &["gzip, gzip"], &["gzip", "gzip"], &[""]] {
            assert!(matches!(declared(bad), Err(ApiError::Coding { .. })), "{bad:?}");
        }
    }

    #[test]
    fn streams_are_expanded_whole_and_within_the_maximum() {
        let expand = |coding: Coding, bytes: &[u8], bytes_max| coding.expand(bytes, bytes_max, |_| Ok(()));
        let text = b"seven bytes, and more of them".repeat(100);
        for coding in [Coding::Gzip, Coding::Deflate] {
            let packed = coding.compress(&text).unwrap();
            assert_eq!(expand(coding, &packed, text.len()).unwrap(), text);
            assert!(matches!(expand(coding, &packed, text.len() - 1), Err(ApiError::TooLarge { .. })), "{coding:?}");
            let broken = |bytes: &[u8]| matches!(expand(coding, bytes, 1 << 20), Err(ApiError::BodyBroken { .. }));
            assert!(broken(&packed[..packed.len() - 1]) && broken(b"") && broken(b"text"), "{coding:?}");
            assert!(broken(&[&packed[..], b"more"].concat()), "{coding:?}");
        }
        let bomb = Coding::Gzip.compress(&vec![0; 64 << 20]).unwrap();
        assert!(matches!(expand(Coding::Gzip, &bomb, 1 << 20), Err(ApiError::TooLarge { bytes_max: 0x10_0000 })));
    }
}
