//! Responses in files: the status, the headers and the body, as `curl -i` and `saggar predict --save` write them.

use std::collections::BTreeMap;
use std::path::Path;

use ureq::http::HeaderMap;

use crate::exit::{self, CliError};

/// Limit on the bytes of a saved response.
pub(crate) const RESPONSE_BYTES_MAX: u64 = 256 << 20;

/// A response that was read from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedResponse {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The headers by lower-case name; the last one of a name.
    pub(crate) headers: BTreeMap<String, String>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

/// Writes a response to a file, which appears as a whole.
///
/// # Errors
/// Fails if the file cannot be written.
pub(super) fn write_response(path: &Path, headers: &HeaderMap, body: &str) -> Result<(), CliError> {
    let mut file = b"HTTP/1.1 200 OK\r\n".to_vec();
    for (name, value) in headers {
        file.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    file.extend([b"\r\n", body.as_bytes()].concat());
    let part = crate::atomic_file::partial_path(path);
    let written = std::fs::write(&part, file).and_then(|()| std::fs::rename(&part, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&part);
        CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", path.display()))
    })
}

impl SavedResponse {
    /// Parses a saved response. Of several, such as those of redirects and `100 Continue`, the last one counts.
    ///
    /// # Errors
    /// Returns the reason as text.
    pub(crate) fn parse(mut file: &[u8]) -> Result<SavedResponse, String> {
        loop {
            let (status, headers, body) = parse_head(file)?;
            let is_interim = status < 200 || (300..400).contains(&status);
            if !(is_interim && body.starts_with(b"HTTP/")) {
                return Ok(SavedResponse { status, headers, body: body.to_vec() });
            }
            file = body;
        }
    }

    /// Returns a header, or an empty text if it is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

type ResponseHead<'a> = (u16, BTreeMap<String, String>, &'a [u8]);

/// Returns the status and the headers, and what follows them.
fn parse_head(file: &[u8]) -> Result<ResponseHead<'_>, String> {
    let mut rest = file;
    let mut line = || {
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or("it ends within the headers")?;
        let (line, after) = rest.split_at(end);
        rest = &after[1..];
        let line = std::str::from_utf8(line).map_err(|_| "its headers are not text")?;
        Ok::<_, String>(line.trim_end_matches('\r'))
    };
    let first = line()?;
    let status = first.strip_prefix("HTTP/").and_then(|first| first.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or("it does not begin with a status such as `HTTP/1.1 200 OK`")?;
    let mut headers = BTreeMap::new();
    loop {
        let text = line()?;
        if text.is_empty() {
            break;
        }
        let (name, value) = text.split_once(':').ok_or_else(|| format!("{text:.80?} is not a header"))?;
        headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
    }
    Ok((status, headers, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_of_curl_are_parsed() {
        let file = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/2 200\r\nX-Saggar-Model: digits@3\r\ncontent-type: application/json\r\n\r\n{\"a\": 1}\n";
        let read = SavedResponse::parse(file).unwrap();
        assert_eq!((read.status, read.header("x-saggar-model"), read.header("none")), (200, "digits@3", ""));
        assert_eq!(read.body, b"{\"a\": 1}\n");
        let unix = SavedResponse::parse(b"HTTP/1.1 404 Not Found\nA: b: c\n\n").unwrap();
        assert_eq!((unix.status, unix.header("a"), unix.body.len()), (404, "b: c", 0));
    }

    #[test]
    fn files_without_headers_are_refused() {
        for (file, says) in [
            (&b""[..], "ends within the headers"),
            (b"{\"label\": 7}\n", "does not begin with a status"),
            (b"HTTP/1.1 200 OK\r\nA: b\r\n", "ends within the headers"),
            (b"HTTP/1.1 200 OK\nnothing\n\n", "is not a header"),
            (b"HTTP/1.1 200 OK\n\xff: x\n\n", "not text"),
        ] {
            let error = SavedResponse::parse(file).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
