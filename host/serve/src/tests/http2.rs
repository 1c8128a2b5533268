//! HTTP/2 on the same port: concurrent requests, shutdown, idle connections, and malicious clients.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Version};
use http_body_util::BodyExt;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::connections::LoopbackServer;
use super::fixture::{BLOCK, image_json};
use crate::connection::ConnectionTimeouts;

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

async fn connect(server: &LoopbackServer) -> (SendRequest<Body>, JoinHandle<hyper::Result<()>>) {
    let io = TokioIo::new(server.connect().await);
    let (sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn predict_request(first: u8) -> Request<Body> {
    let request = Request::post("http://localhost/predict").header("content-type", "application/json");
    request.body(Body::from(image_json(first))).unwrap()
}

async fn get(sender: &mut SendRequest<Body>, path: &str) -> (u16, String) {
    let request = Request::get(format!("http://localhost{path}")).body(Body::empty()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.version(), Version::HTTP_2);
    let status = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn requests_run_concurrently_on_one_http2_connection() {
    let server = LoopbackServer::with_listen_policy().await;
    let (mut sender, _connection) = connect(&server).await;
    let blocked = tokio::spawn(sender.send_request(predict_request(BLOCK)));
    let in_flight = r#"saggar_predict_in_flight{model="digits",version="1"}"#;
    server.fixture.metric_becomes(in_flight, Some(1.0)).await;
    assert_eq!(get(&mut sender, "/healthz").await, (200, "ok".to_owned()));
    let (status, text) = get(&mut sender, "/no/such/page").await;
    assert!(status == 404 && text.contains("request_id"), "{text}");
    server.fixture.host.gate.open();
    let answer = blocked.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.headers().contains_key("x-request-id"));
    let counted = r#"saggar_http_requests_total{code="200",method="POST",route="/predict"}"#;
    server.fixture.metric_becomes(counted, Some(1.0)).await;
}

#[tokio::test]
async fn the_body_limit_applies_to_http2() {
    let server = LoopbackServer::with_listen_policy().await;
    let (mut sender, _connection) = connect(&server).await;
    let request = Request::post("http://localhost/predict").header("content-type", "application/json");
    let pieces = (0..40).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1 << 20]));
    let long = Body::from_stream(futures::stream::iter(pieces));
    let answer = sender.send_request(request.body(long).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 413);
    assert_eq!(get(&mut sender, "/healthz").await.0, 200, "the connection stays open");
}

#[tokio::test]
async fn host_checks_apply_to_http2() {
    let server = LoopbackServer::with_listen_policy().await;
    let (mut sender, _connection) = connect(&server).await;
    let request = Request::post("http://evil.example/predict").body(Body::empty()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 403);
    let request = Request::post("http://localhost/predict").header("host", "other").body(Body::empty()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 400);
}

#[tokio::test]
async fn a_stopping_server_finishes_http2_requests_in_flight() {
    let server = LoopbackServer::with_listen_policy().await;
    let (mut sender, connection) = connect(&server).await;
    let (mut other, idle) = connect(&server).await;
    assert_eq!(get(&mut other, "/healthz").await.0, 200);
    let blocked = tokio::spawn(sender.send_request(predict_request(BLOCK)));
    let in_flight = r#"saggar_predict_in_flight{model="digits",version="1"}"#;
    server.fixture.metric_becomes(in_flight, Some(1.0)).await;
    server.fixture.stop.send(true).unwrap();
    idle.await.unwrap().unwrap();
    server.fixture.host.gate.open();
    let answer = blocked.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    answer.into_body().collect().await.unwrap();
    connection.await.unwrap().unwrap();
    server.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed_and_a_busy_one_is_not() {
    let patience = ConnectionTimeouts { head: Duration::from_millis(100), ..ConnectionTimeouts::default() };
    let server = LoopbackServer::start_with(patience, None, true).await;
    let (mut busy, running) = connect(&server).await;
    let blocked = tokio::spawn(busy.send_request(predict_request(BLOCK)));
    let in_flight = r#"saggar_predict_in_flight{model="digits",version="1"}"#;
    server.fixture.metric_becomes(in_flight, Some(1.0)).await;
    let (mut sender, idle) = connect(&server).await;
    assert_eq!(get(&mut sender, "/healthz").await.0, 200);
    idle.await.unwrap().unwrap();
    // A client that sends only the preface, a part of it, or nothing.
    for hello in [HTTP2_PREFACE, &HTTP2_PREFACE[..10], &[]] {
        let mut stream = server.connect().await;
        stream.write_all(hello).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    }
    assert!(!running.is_finished());
    server.fixture.host.gate.open();
    assert_eq!(blocked.await.unwrap().unwrap().status(), 200);
}

/// Returns a frame: its length, type, flags, stream and payload.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET / HTTP/2` for `x`, from HPACK's static table.
const GET: &[u8] = &[0x82, 0x84, 0x86, 0x41, 1, b'x'];

const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// Sends frames and reads until the server closes. Returns the error code of its GOAWAY frame.
async fn read_goaway_error(server: &LoopbackServer, frames: &[u8]) -> Option<u32> {
    let mut stream = server.connect().await;
    let (mut reader, mut writer) = stream.split();
    let hello = [HTTP2_PREFACE, &frame(SETTINGS, 0, 0, &[]), frames].concat();
    let mut read = Vec::new();
    // The server may close the connection before everything is sent.
    let (_, _) = tokio::join!(writer.write_all(&hello), reader.read_to_end(&mut read));
    let mut rest = &read[..];
    while rest.len() >= 9 {
        let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
        let (kind, payload) = (rest[3], rest.get(9..9 + length)?);
        if kind == GOAWAY {
            return Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
        rest = &rest[9 + length..];
    }
    None
}

#[tokio::test]
async fn rapid_resets_close_the_connection() {
    let server = LoopbackServer::with_listen_policy().await;
    let mut frames = Vec::new();
    for at in 0..10_000 {
        let stream = 2 * at + 1;
        frames.extend(frame(HEADERS, 0x5, stream, GET));
        frames.extend(frame(RESET, 0, stream, &8u32.to_be_bytes()));
    }
    // 11 is ENHANCE_YOUR_CALM.
    assert_eq!(read_goaway_error(&server, &frames).await, Some(11));
    server.assert_still_serves().await;
}

#[tokio::test]
async fn endless_continuation_frames_close_the_connection() {
    let server = LoopbackServer::with_listen_policy().await;
    // A field of 16,000 bytes, repeated in a head that never ends.
    let mut field = vec![0x40, 1, b'x', 0x7f];
    field.extend([0x81, 0x7c]);
    field.extend(vec![b'a'; 16_000]);
    let mut frames = frame(HEADERS, 0x1, 1, GET);
    for _ in 0..1000 {
        frames.extend(frame(CONTINUATION, 0, 1, &field));
    }
    let error = read_goaway_error(&server, &frames).await;
    assert!(error.is_some_and(|error| error != 0), "{error:?}");
    server.assert_still_serves().await;
}

#[tokio::test]
async fn invalid_frames_after_the_preface_close_the_connection() {
    let server = LoopbackServer::with_listen_policy().await;
    for nonsense in [
        frame(HEADERS, 0x5, 2, GET),
        frame(HEADERS, 0x5, 0, GET),
        frame(SETTINGS, 0, 0, &[0; 5]),
        frame(HEADERS, 0x5, 1, &[0xff; 64]),
        vec![0xff; 1000],
    ] {
        let error = read_goaway_error(&server, &nonsense).await;
        assert!(error.is_some_and(|error| error != 0), "{error:?}");
    }
    server.assert_still_serves().await;
}

/// Returns a head that requests `path`.
fn get_head(path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap();
    [&[0x82, 0x86, 0x41, 1, b'x', 0x44, length], path.as_bytes()].concat()
}

/// Returns the preface of a client that lets each stream send `window` bytes.
fn client_preface(window: u32) -> Vec<u8> {
    let settings = [&4_u16.to_be_bytes()[..], &window.to_be_bytes()].concat();
    [HTTP2_PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat()
}

/// Reads frames until `enough` accepts the type and stream of one, sending pings all the while. Returns false if the
/// connection ends first.
async fn ping_until(stream: &mut TcpStream, enough: impl Fn(u8, u32) -> bool) -> bool {
    let (mut reader, mut writer) = stream.split();
    let ping = async {
        loop {
            // The server may close the connection before everything is sent.
            let _ = writer.write_all(&frame(PING, 0, 0, &[0; 8])).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let read = async {
        let mut head = [0; 9];
        while reader.read_exact(&mut head).await.is_ok() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            if reader.read_exact(&mut vec![0; length]).await.is_err() {
                return false;
            }
            if enough(head[3], u32::from_be_bytes(head[5..].try_into().unwrap())) {
                return true;
            }
        }
        false
    };
    tokio::select! {
        () = ping => unreachable!(),
        found = tokio::time::timeout(Duration::from_secs(60), read) => found.expect("it does not end"),
    }
}

fn short_timeouts() -> ConnectionTimeouts {
    let soon = Duration::from_millis(200);
    ConnectionTimeouts { response: soon, drain: soon, ..ConnectionTimeouts::default() }
}

#[tokio::test]
async fn unread_responses_are_reset_and_the_connection_continues() {
    let server = LoopbackServer::start(short_timeouts()).await;
    // A window of zero bytes, and one smaller than a chunk.
    for window in [0, 10] {
        let mut stream = server.connect().await;
        let asked = [client_preface(window), frame(HEADERS, 0x5, 1, &get_head("/openapi.json"))].concat();
        stream.write_all(&asked).await.unwrap();
        assert!(ping_until(&mut stream, |kind, of| (kind, of) == (RESET, 1)).await, "window {window}");
        stream.write_all(&frame(HEADERS, 0x5, 3, &get_head("/healthz"))).await.unwrap();
        assert!(ping_until(&mut stream, |kind, of| (kind, of) == (HEADERS, 3)).await, "window {window}");
    }
}

/// Once a short response is queued completely, it can no longer be reset.
#[tokio::test]
async fn a_connection_with_unread_queued_responses_is_closed() {
    let server = LoopbackServer::start(short_timeouts()).await;
    let mut stream = server.connect().await;
    let asked = [client_preface(1), frame(HEADERS, 0x5, 1, &get_head("/healthz"))].concat();
    stream.write_all(&asked).await.unwrap();
    assert!(!ping_until(&mut stream, |_, _| false).await);
    server.assert_still_serves().await;
}

#[tokio::test]
async fn an_idle_event_stream_is_not_reset() {
    let server = LoopbackServer::start(short_timeouts()).await;
    let (mut sender, connection) = connect(&server).await;
    let request = Request::get("http://localhost/api/v1/events?follow=1").body(Body::empty()).unwrap();
    let mut events = sender.send_request(request).await.unwrap().into_body();
    let first = events.frame().await.unwrap().unwrap();
    assert!(first.into_data().unwrap().starts_with(b"event: ready"));
    let quiet = tokio::time::timeout(5 * short_timeouts().response, events.frame()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    assert!(!connection.is_finished());
}

#[tokio::test]
async fn floods_of_control_frames_do_not_keep_a_connection_open() {
    let patience = ConnectionTimeouts { head: Duration::from_millis(300), ..ConnectionTimeouts::default() };
    let server = LoopbackServer::start(patience).await;
    let updates = frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes());
    for flood in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[]), updates] {
        let mut stream = server.connect().await;
        let (mut reader, mut writer) = stream.split();
        let send = async {
            let many = flood.repeat(1000);
            writer.write_all(&client_preface(65_535)).await?;
            loop {
                writer.write_all(&many).await?;
            }
        };
        let drop_all = async { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await };
        let ended = async {
            tokio::select! {
                sent = send => { let _: std::io::Result<()> = sent; }
                _ = drop_all => {}
            }
        };
        tokio::time::timeout(Duration::from_secs(60), ended).await.expect("it does not end");
        server.assert_still_serves().await;
    }
}
