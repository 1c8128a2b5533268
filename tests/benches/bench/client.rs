//! A low-overhead HTTP/1.1 client that records what `wrk` cannot: when each request began and how it ended.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Maximum bytes of a response's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Timeout of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A keep-alive connection.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// Returns a request's bytes, head and body.
pub(crate) fn encode_post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n");
    format!("{head}content-length: {length}\r\n{headers}\r\n{body}").into_bytes()
}

impl HttpConnection {
    /// Connects to a port.
    ///
    /// # Errors
    /// Returns an error if nothing listens there.
    pub(crate) fn open(port: u16) -> io::Result<HttpConnection> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        Ok(HttpConnection { stream, buffer: Vec::with_capacity(HEAD_BYTES_MAX) })
    }

    /// Sends the request, reads the whole response, and returns its status.
    ///
    /// # Errors
    /// Returns an error if the connection ends, or the response has no content length.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<u16> {
        self.stream.write_all(request)?;
        self.buffer.clear();
        loop {
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes)?;
            if count == 0 || self.buffer.len() > HEAD_BYTES_MAX {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.buffer.extend_from_slice(&bytes[..count]);
            if let Some((status, length)) = parse_response(&self.buffer)?
                && self.buffer.len() >= length
            {
                return Ok(status);
            }
        }
    }
}

/// Returns the status and the length of head and body, or `None` if the head is incomplete.
pub(crate) fn parse_response(bytes: &[u8]) -> io::Result<Option<(u16, usize)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(invalid)?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.and_then(|length| length.trim().parse().ok()).ok_or_else(invalid)?;
    Ok(Some((status, end + 4 + length)))
}

/// Returns whether a request on a new connection is answered with 200.
pub(crate) fn post_once(port: u16, path: &str, body: &str) -> bool {
    let request = encode_post(path, "connection: close\r\n", body);
    HttpConnection::open(port).and_then(|mut connection| connection.send(&request)).is_ok_and(|status| status == 200)
}

/// Returns the port of a server's URL.
pub(crate) fn port_of_url(url: &str) -> u16 {
    url.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok()).expect("an address with a port")
}
