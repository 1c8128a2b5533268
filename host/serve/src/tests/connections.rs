//! Over real sockets: bodies that are too long, clients that are too slow, and shutdown.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::fixture::{BLOCK, ServerFixture, image_json};
use crate::connection::file_descriptors::ConnectionCapacity;
use crate::connection::{self, ConnectionTimeouts};
use crate::{ServerListener, TlsCertificates};

/// A server on a separate port.
pub(super) struct LoopbackServer {
    pub(super) fixture: ServerFixture,
    pub(super) address: SocketAddr,
    pub(super) task: JoinHandle<std::io::Result<()>>,
}

impl LoopbackServer {
    /// Starts a server without access checks.
    pub(super) async fn start(patience: ConnectionTimeouts) -> LoopbackServer {
        LoopbackServer::start_with(patience, None, false).await
    }

    /// Starts a server with the listen policy of a loopback listener that requires no keys.
    pub(super) async fn with_listen_policy() -> LoopbackServer {
        LoopbackServer::start_with(ConnectionTimeouts::default(), None, true).await
    }

    pub(super) async fn start_with(
        patience: ConnectionTimeouts,
        certificates: Option<TlsCertificates>,
        door: bool,
    ) -> LoopbackServer {
        LoopbackServer::start_with_capacity(ConnectionCapacity::default(), patience, certificates, door).await
    }

    async fn start_with_capacity(
        capacity: ConnectionCapacity,
        patience: ConnectionTimeouts,
        certificates: Option<TlsCertificates>,
        door: bool,
    ) -> LoopbackServer {
        let fixture = ServerFixture::with_digits_serving().await;
        let listener = ServerListener::tcp(([127, 0, 0, 1], 0).into(), certificates, false).await.unwrap();
        let address = listener.url().rsplit('/').next().unwrap().parse().unwrap();
        let router = if door { fixture.app.router_for(listener.listen_policy()) } else { fixture.router.clone() };
        let stopping = fixture.stop.subscribe();
        let task = tokio::spawn(connection::serve(vec![(listener, router)], stopping, patience, capacity));
        LoopbackServer { fixture, address, task }
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes and reads until the server closes or `patience` has passed. Returns what was read and whether the
    /// connection was closed.
    pub(super) async fn exchange(&self, bytes: &[u8]) -> (String, bool) {
        let mut stream = self.connect().await;
        // The server may close the connection before everything is sent.
        let _ = stream.write_all(bytes).await;
        read_to_close(&mut stream).await
    }

    /// Asserts that the server still answers other requests.
    pub(super) async fn assert_still_serves(&self) {
        let mut stream = self.connect().await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        assert!(read_response(&mut stream, "ok").await.starts_with("HTTP/1.1 200 OK"));
    }
}

/// Reads until the server closes, or is silent for two seconds. Returns what was read and whether the connection was
/// closed.
pub(super) async fn read_to_close(stream: &mut TcpStream) -> (String, bool) {
    let (mut read, mut piece) = (Vec::new(), [0; 4096]);
    let closed = loop {
        match tokio::time::timeout(Duration::from_secs(2), stream.read(&mut piece)).await {
            Err(_) => break false,
            Ok(Ok(0) | Err(_)) => break true,
            Ok(Ok(count)) => read.extend(&piece[..count]),
        }
    };
    (String::from_utf8_lossy(&read).into_owned(), closed)
}

pub(super) fn predict_request(body: &str) -> String {
    let head = "POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

/// Reads until the end of the response has arrived.
pub(super) async fn read_response(stream: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(end) {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.unwrap();
        assert!(count > 0, "the connection ended after {:?}", String::from_utf8_lossy(&read));
        read.extend(&piece[..count]);
    }
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn a_connection_serves_several_requests_in_turn() {
    let server = LoopbackServer::start(ConnectionTimeouts::default()).await;
    let mut stream = server.connect().await;
    for _ in 0..3 {
        stream.write_all(predict_request(&image_json(1)).as_bytes()).await.unwrap();
        let answer = read_response(&mut stream, "}").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.ends_with(r#"{"sum":10.0,"mark":1}"#), "{answer}");
    }
}

/// 100 MB are refused once their length is known, and a client that sends them anyway reads the response.
#[tokio::test]
async fn a_body_sent_after_its_response_does_not_close_the_connection() {
    let server = LoopbackServer::start(ConnectionTimeouts::default()).await;
    let mut stream = server.connect().await;
    for path in ["/no/such/path", "/models/nothing/predict"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        assert!(read_response(&mut stream, "}").await.starts_with("HTTP/1.1 404 "), "{path}");
        stream.write_all(b"{}").await.unwrap();
    }
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert!(read_response(&mut stream, "ok").await.starts_with("HTTP/1.1 200 "), "the same connection stays open");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_unread_with_413() {
    let server = LoopbackServer::start(ConnectionTimeouts::default()).await;
    for head in ["content-length: 100000000\r\n\r\n", "transfer-encoding: chunked\r\n\r\n"] {
        let mut stream = server.connect().await;
        let head = format!("POST /predict HTTP/1.1\r\nhost: x\r\n{head}");
        stream.write_all(head.as_bytes()).await.unwrap();
        let chunked = head.contains("chunked");
        let (mut reader, mut writer) = stream.split();
        let send = async {
            let piece = vec![b' '; 1_000_000];
            for _ in 0..100 {
                if chunked {
                    writer.write_all(b"f4240\r\n").await?;
                }
                writer.write_all(&piece).await?;
                if chunked {
                    writer.write_all(b"\r\n").await?;
                }
            }
            if chunked { writer.write_all(b"0\r\n\r\n").await } else { Ok(()) }
        };
        let read = async {
            let mut read = Vec::new();
            while !read.ends_with(b"}") {
                let mut piece = [0; 4096];
                let count = reader.read(&mut piece).await.unwrap();
                assert!(count > 0);
                read.extend(&piece[..count]);
            }
            String::from_utf8(read).unwrap()
        };
        let (sent, answer) = tokio::join!(send, read);
        sent.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        assert!(answer.contains("body: more than 10485760 bytes"), "{answer}");
    }
}

#[tokio::test]
async fn an_expect_continue_for_a_long_body_is_refused() {
    let server = LoopbackServer::start(ConnectionTimeouts::default()).await;
    let mut stream = server.connect().await;
    let head = "POST /predict HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 100000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_response(&mut stream, "}").await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn an_unfinished_request_head_times_out() {
    let patience = ConnectionTimeouts { head: Duration::from_millis(50), ..ConnectionTimeouts::default() };
    let server = LoopbackServer::start(patience).await;
    let mut stream = server.connect().await;
    stream.write_all(b"POST /predict HTTP/1.1\r\nhost").await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(!String::from_utf8_lossy(&rest).contains("200"), "{rest:?}");
}

#[tokio::test]
async fn invalid_http_closes_only_its_own_connection() {
    let server = LoopbackServer::start(ConnectionTimeouts::default()).await;
    for nonsense in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", &[b'x'; 100_000]]
    {
        let mut stream = server.connect().await;
        // The server may already have closed the connection, so that reading fails with a reset.
        let _ = stream.write_all(nonsense).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    let mut stream = server.connect().await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(read_response(&mut stream, "ok").await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn a_stopping_server_finishes_requests_in_flight() {
    let server = LoopbackServer::start(ConnectionTimeouts::default()).await;
    let mut idle = server.connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    read_response(&mut idle, "ok").await;
    let mut busy = server.connect().await;
    busy.write_all(predict_request(&image_json(BLOCK)).as_bytes()).await.unwrap();
    let in_flight = r#"saggar_predict_in_flight{model="digits",version="1"}"#;
    server.fixture.metric_becomes(in_flight, Some(1.0)).await;
    server.fixture.stop.send(true).unwrap();
    assert_eq!(idle.read(&mut [0; 16]).await.unwrap(), 0, "an idle connection is closed");
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    server.fixture.host.gate.open();
    let answer = read_response(&mut busy, "}").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    server.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_past_the_drain_timeout_does_not_delay_shutdown() {
    let server =
        LoopbackServer::start(ConnectionTimeouts { drain: Duration::from_millis(20), ..ConnectionTimeouts::default() })
            .await;
    let mut busy = server.connect().await;
    busy.write_all(predict_request(&image_json(BLOCK)).as_bytes()).await.unwrap();
    let in_flight = r#"saggar_predict_in_flight{model="digits",version="1"}"#;
    server.fixture.metric_becomes(in_flight, Some(1.0)).await;
    server.fixture.stop.send(true).unwrap();
    server.task.await.unwrap().unwrap();
    server.fixture.host.gate.open();
}

const HEALTH_REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";

/// Opens connections that have sent a request and stay open.
async fn open_idle_connections(server: &LoopbackServer, count: usize) -> Vec<TcpStream> {
    let mut idle = Vec::new();
    for _ in 0..count {
        let mut stream = server.connect().await;
        stream.write_all(HEALTH_REQUEST).await.unwrap();
        read_response(&mut stream, "ok").await;
        idle.push(stream);
    }
    idle
}

#[tokio::test]
async fn idle_connections_are_evicted_and_busy_ones_are_not() {
    let capacity = ConnectionCapacity::from_connections(6);
    let server = LoopbackServer::start_with_capacity(capacity, ConnectionTimeouts::default(), None, false).await;
    let mut busy = server.connect().await;
    busy.write_all(predict_request(&image_json(BLOCK)).as_bytes()).await.unwrap();
    let in_flight = r#"saggar_predict_in_flight{model="digits",version="1"}"#;
    server.fixture.metric_becomes(in_flight, Some(1.0)).await;
    let mut idle = open_idle_connections(&server, 5).await;
    // All places are taken, and each new client evicts one connection.
    for (at, mut stream) in std::iter::zip(0.., idle.drain(..4)) {
        let mut late = server.connect().await;
        late.write_all(HEALTH_REQUEST).await.unwrap();
        read_response(&mut late, "ok").await;
        if at == 0 {
            assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0, "the one that was idle for longest is closed");
        }
    }
    server.fixture.host.gate.open();
    assert!(read_response(&mut busy, "}").await.starts_with("HTTP/1.1 200 OK"));
}

/// Incomplete request heads hold places too, until another connection needs them.
#[tokio::test]
async fn connections_without_a_complete_request_are_evicted() {
    let capacity = ConnectionCapacity::from_connections(4);
    let server = LoopbackServer::start_with_capacity(capacity, ConnectionTimeouts::default(), None, false).await;
    let mut quiet = Vec::new();
    for at in 0..4 {
        let mut stream = server.connect().await;
        if at % 2 == 0 {
            stream.write_all(b"GET /healthz HTTP/1.1\r\nho").await.unwrap();
        }
        quiet.push(stream);
    }
    open_idle_connections(&server, 3).await;
}
