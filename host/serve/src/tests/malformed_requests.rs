//! Over real sockets: requests with malicious heads, framing or timing.

use std::fmt::Write;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::post;
use saggar_serving::RequestMemoryBudget;
use saggar_serving::limits::REQUEST_MEMORY_BYTES_DEFAULT;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::connections::{LoopbackServer, read_to_close};
use crate::connection::file_descriptors::ConnectionCapacity;
use crate::connection::{self, ConnectionTimeouts};
use crate::error::ApiError;
use crate::request_body::BodyReader;
use crate::{ServerListener, limits};

/// The bytes after a request whose end is ambiguous: a second request, if the server parses it as one.
const SMUGGLED_REQUEST: &str = "GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn response_statuses(read: &str) -> Vec<u16> {
    read.match_indices("HTTP/1.1 ").map(|(at, _)| read[at + 9..at + 12].parse().unwrap()).collect()
}

/// Every request here can be parsed in two ways. It is refused, and nothing after it on the connection is served.
#[tokio::test]
async fn ambiguous_framing_is_refused_and_closes_the_connection() {
    let server = LoopbackServer::with_listen_policy().await;
    for head in [
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 6\r\ncontent-length: 5",
        "content-length: +5",
        "content-length: -5",
        "content-length: 5 ",
        "content-length: 0x5",
        "content-length: 5, 6",
        "content-length: 99999999999999999999999",
        "content-length: ",
        "transfer-encoding: identity, chunked",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: identity",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "transfer-encoding: xchunked",
        "transfer-encoding : chunked",
        " transfer-encoding: chunked",
        "x: a\r\n folded: b\r\ncontent-length: 5",
        "x: a\rb\r\ncontent-length: 5",
        "x\0: a\r\ncontent-length: 5",
        "content-length: 5\r\nhost: localhost",
    ] {
        let request = format!("POST /predict HTTP/1.1\r\nhost: localhost\r\n{head}\r\n\r\n0\r\n\r\n{SMUGGLED_REQUEST}");
        let (read, closed) = server.exchange(request.as_bytes()).await;
        let codes = response_statuses(&read);
        let trailing = head == "content-length: 5 ";
        // White space after a value is not part of it (RFC 9112, 5): five bytes, and then another request.
        let expected: &[u16] = if trailing { &[400, 200] } else { &[400] };
        assert!(codes == expected && closed != trailing, "{head:?}: {codes:?} closed {closed}\n{read}");
    }
    server.assert_still_serves().await;
}

/// The parser uses chunked encoding and ignores the length. RFC 9112 permits that only if the connection then ends.
#[tokio::test]
async fn content_length_with_chunked_encoding_closes_the_connection() {
    let server = LoopbackServer::with_listen_policy().await;
    for lengths in
        ["content-length: 5\r\ntransfer-encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 5"]
    {
        let request =
            format!("POST /predict HTTP/1.1\r\nhost: localhost\r\n{lengths}\r\n\r\n0\r\n\r\n{SMUGGLED_REQUEST}");
        let (read, closed) = server.exchange(request.as_bytes()).await;
        assert_eq!((response_statuses(&read).len(), closed), (1, true), "{lengths:?}: {read}");
        assert!(read.contains("connection: close"), "{read}");
    }
}

/// A line that ends in a bare line feed means the same as one with a carriage return (RFC 9112, 2.2): one request,
/// followed by the next.
#[tokio::test]
async fn bare_line_feeds_end_header_lines_only() {
    let server = LoopbackServer::with_listen_policy().await;
    let request =
        "GET /healthz HTTP/1.1\nhost: localhost\ncontent-length: 4\n\nGET /".to_owned() + &SMUGGLED_REQUEST[5..];
    let (read, _) = server.exchange(request.as_bytes()).await;
    assert_eq!(response_statuses(&read)[0], 200, "{read}");
    assert!(!read.contains("\"version\""), "the body is not parsed as a request: {read}");
}

#[tokio::test]
async fn invalid_chunks_close_the_connection() {
    let server = LoopbackServer::with_listen_policy().await;
    for chunks in [
        "fffffffffffffffff\r\nx",
        "10000000000000000\r\nx",
        "-1\r\nx\r\n",
        "+1\r\nx\r\n",
        "0x1\r\nx\r\n",
        " 1\r\nx\r\n",
        "1\nx\r\n",
        "1\r\nxy\r\n0\r\n\r\n",
        "\r\n",
        "g\r\n",
    ] {
        let head = "POST /predict HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
        let (read, closed) = server.exchange(format!("{head}{chunks}{SMUGGLED_REQUEST}").as_bytes()).await;
        assert!(closed && !read.contains("\"version\""), "{chunks:?}: {read}");
        assert!(response_statuses(&read).iter().all(|code| *code == 400), "{chunks:?}: {read}");
    }
    let endless = format!("1;{}\r\nx\r\n", "a".repeat(100_000));
    let head = "POST /predict HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    let (read, closed) = server.exchange(format!("{head}{endless}").as_bytes()).await;
    assert!(closed && response_statuses(&read) == [400], "{read}");
    server.assert_still_serves().await;
}

#[tokio::test]
async fn oversized_request_heads_are_refused() {
    let server = LoopbackServer::with_listen_policy().await;
    let fields = (0..200).fold(String::new(), |mut fields, at| {
        write!(fields, "x-{at}: 1\r\n").unwrap();
        fields
    });
    let long = "a".repeat(limits::HEAD_BYTES_MAX + 1);
    for (head, code) in [
        (format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n"), 431),
        (format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n"), 431),
        (format!("GET /{long} HTTP/1.1\r\nhost: localhost\r\n\r\n"), 414),
    ] {
        let (read, closed) = server.exchange(head.as_bytes()).await;
        let codes = response_statuses(&read);
        // A head that is too long is refused once that is known, before its line is complete.
        let refused = codes == [code] || codes == [431] || codes.is_empty();
        assert!(closed && refused, "{code}: {read} {}", &head[..60]);
    }
    server.assert_still_serves().await;
}

#[tokio::test]
async fn invalid_host_headers_are_refused() {
    let server = LoopbackServer::with_listen_policy().await;
    let long = "a".repeat(10_000);
    for host in [
        "",
        "host: \r\n",
        "host: a b\r\n",
        "host: localhost\r\nhost: evil.example\r\n",
        "host: localhost/../x\r\n",
        "host: localhost:notaport\r\n",
        "host: user@localhost\r\n",
        &format!("host: {long}\r\n"),
        "host: \u{fffd}\r\n",
    ] {
        let (read, closed) =
            server.exchange(format!("GET /version HTTP/1.1\r\n{host}\r\n{SMUGGLED_REQUEST}").as_bytes()).await;
        assert!(closed && response_statuses(&read) == [400], "{host:?}: {read}");
        assert!(read.contains("\"bad_host\""), "{host:?}: {read}");
    }
    let (read, _) = server.exchange(b"GET http://evil.example/version HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(response_statuses(&read), [400], "{read}");
    let (read, closed) = server.exchange(b"GET /version HTTP/1.0\r\n\r\n").await;
    assert!(closed && read.contains("\"version\""), "HTTP/1.0 needs no host: {read}");
}

/// Starts a server with one route that reads its body, with a short idle timeout.
async fn body_reading_server(quiet: Duration) -> (TcpStream, watch::Sender<bool>) {
    let memory = RequestMemoryBudget::new(REQUEST_MEMORY_BYTES_DEFAULT);
    let bodies = BodyReader::with_idle_timeout(memory, quiet);
    let read = async move |request: Request| {
        let (parts, body) = request.into_parts();
        let whole = bodies.read(&parts, body, limits::BODY_BYTES_MAX).await?;
        Ok::<_, ApiError>(whole.bytes.len().to_string())
    };
    let listener = ServerListener::tcp(([127, 0, 0, 1], 0).into(), None, false).await.unwrap();
    let address = listener.url().replace("http://", "");
    let (stop, stopping) = watch::channel(false);
    let router = Router::new().route("/", post(read));
    let (patience, capacity) = (ConnectionTimeouts::default(), ConnectionCapacity::default());
    tokio::spawn(connection::serve(vec![(listener, router)], stopping, patience, capacity));
    (TcpStream::connect(address).await.unwrap(), stop)
}

#[tokio::test]
async fn a_stalled_body_times_out() {
    let (mut stream, _stop) = body_reading_server(Duration::from_millis(50)).await;
    stream.write_all(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nabc").await.unwrap();
    let (read, _) = read_to_close(&mut stream).await;
    assert_eq!(response_statuses(&read), [408], "{read}");
}

#[tokio::test]
async fn a_body_in_tiny_chunks_is_refused_and_one_in_small_chunks_is_not() {
    let head = "POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    let body = |piece: &str, pieces: usize| {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        format!("{head}{}0\r\n\r\n", chunk.repeat(pieces))
    };
    for (piece, pieces, expected) in [("x", 20_000, 400), ("x", 4_000, 200), (&*"x".repeat(64), 20_000, 200)] {
        let (stream, _stop) = body_reading_server(Duration::from_secs(10)).await;
        let (mut reading, mut writing) = stream.into_split();
        let body = body(piece, pieces);
        let write = tokio::spawn(async move {
            // The server may refuse the request before it is sent completely.
            let _ = writing.write_all(body.as_bytes()).await;
            writing
        });
        let mut read = Vec::new();
        let mut piece = [0; 4096];
        while !String::from_utf8_lossy(&read).contains("\r\n\r\n") {
            let count = tokio::io::AsyncReadExt::read(&mut reading, &mut piece).await.unwrap();
            assert!(count > 0, "no answer");
            read.extend(&piece[..count]);
        }
        assert_eq!(response_statuses(&String::from_utf8(read).unwrap()), [expected], "{pieces} pieces");
        drop(write.await);
    }
}
