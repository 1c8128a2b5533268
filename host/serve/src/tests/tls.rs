//! TLS: protocol negotiation, certificates that change while the server runs, and clients that do not use TLS.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connections::{LoopbackServer, read_to_close};
use crate::connection::ConnectionTimeouts;
use crate::{TlsCertificates, TlsError};

// Keys generated for these tests; nothing else trusts them.
const FIRST: (&str, &str) = (include_str!("certificates/first.crt.pem"), include_str!("certificates/first.key.pem"));
const SECOND: (&str, &str) = (include_str!("certificates/second.crt.pem"), include_str!("certificates/second.key.pem"));

fn write_certificate(dir: &Path, (certificate, key): (&str, &str)) {
    std::fs::write(dir.join("tls.crt"), certificate).unwrap();
    std::fs::write(dir.join("tls.key"), key).unwrap();
}

fn load_certificates(dir: &Path) -> Result<TlsCertificates, TlsError> {
    TlsCertificates::load(dir.join("tls.crt"), dir.join("tls.key"))
}

async fn serve_tls(dir: &Path) -> (LoopbackServer, TlsCertificates) {
    write_certificate(dir, FIRST);
    let certificates = load_certificates(dir).unwrap();
    let patience = ConnectionTimeouts { handshake: Duration::from_millis(300), ..ConnectionTimeouts::default() };
    (LoopbackServer::start_with(patience, Some(certificates.clone()), true).await, certificates)
}

/// Does the handshake as a client that trusts both certificates and offers `protocols`.
async fn connect(server: &LoopbackServer, protocols: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for (pem, _) in [FIRST, SECOND] {
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, server.connect().await).await
}

/// Returns which of the two certificates the server presents.
async fn served_certificate(server: &LoopbackServer) -> &'static str {
    let stream = connect(server, &[]).await.unwrap();
    let found = &stream.get_ref().1.peer_certificates().unwrap()[0];
    let is = |pem: &str| *found == CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    if is(FIRST.0) { "first" } else { "second" }
}

async fn wait_for_certificate(server: &LoopbackServer, expected: &str) {
    while served_certificate(server).await != expected {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn alpn_selects_the_http_version() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = serve_tls(dir.path()).await;
    for (offered, agreed) in
        [(&["h2", "http/1.1"][..], Some(&b"h2"[..])), (&["http/1.1"], Some(b"http/1.1")), (&[], None)]
    {
        let mut stream = connect(&server, offered).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed);
        if agreed == Some(b"h2") {
            let io = hyper_util::rt::TokioIo::new(stream);
            let executor = hyper_util::rt::TokioExecutor::new();
            let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
            tokio::spawn(connection);
            let request = axum::http::Request::get("https://localhost/healthz");
            let answer = sender.send_request(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.status(), 200);
        } else {
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut read = String::new();
            stream.read_to_string(&mut read).await.unwrap();
            assert!(read.starts_with("HTTP/1.1 200 OK"), "{read}");
        }
    }
    assert!(connect(&server, &["smtp"]).await.is_err());
}

#[tokio::test]
async fn a_plain_http_request_gets_a_hint_to_use_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = serve_tls(dir.path()).await;
    let mut stream = server.connect().await;
    stream.write_all(b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\nabc").await.unwrap();
    let (read, closed) = read_to_close(&mut stream).await;
    assert!(closed && read.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{read}");
    assert!(read.contains("\"https_only\"") && read.contains("connection: close"), "{read}");
}

#[tokio::test]
async fn an_unfinished_tls_handshake_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = serve_tls(dir.path()).await;
    for begun in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01\x00", &[0; 100]] {
        let mut stream = server.connect().await;
        stream.write_all(begun).await.unwrap();
        let (_, closed) = read_to_close(&mut stream).await;
        assert!(closed, "{begun:?}");
    }
    assert_eq!(served_certificate(&server).await, "first");
}

#[tokio::test]
async fn replaced_certificates_are_reloaded_and_invalid_ones_are_not() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("live");
    std::fs::create_dir(&dir).unwrap();
    let (server, certificates) = serve_tls(&dir).await;
    let (_stop, stopping) = watch::channel(false);
    tokio::spawn(certificates.watch_files_every(Duration::from_millis(5), stopping));
    assert_eq!(served_certificate(&server).await, "first");
    // Written in place.
    write_certificate(&dir, SECOND);
    wait_for_certificate(&server, "second").await;
    // Renamed.
    for (name, text) in [("tls.crt", FIRST.0), ("tls.key", FIRST.1)] {
        std::fs::write(dir.join("staged"), text).unwrap();
        std::fs::rename(dir.join("staged"), dir.join(name)).unwrap();
    }
    wait_for_certificate(&server, "first").await;
    // Behind a symbolic link that is swapped, as Kubernetes does.
    let other = root.path().join("other");
    std::fs::create_dir(&other).unwrap();
    write_certificate(&other, SECOND);
    std::fs::rename(&dir, root.path().join("was")).unwrap();
    std::os::unix::fs::symlink(&other, &dir).unwrap();
    wait_for_certificate(&server, "second").await;
    // A mismatched pair, half a certificate, empty files: the previous certificate stays, and a valid one is loaded
    // after that.
    for bad in [(FIRST.0, SECOND.1), (&FIRST.0[..100], FIRST.1), ("", ""), (FIRST.0, "no key")] {
        write_certificate(&other, bad);
        assert!(load_certificates(&dir).is_err());
        let judged = std::time::Instant::now() + Duration::from_millis(50);
        while std::time::Instant::now() < judged {
            assert_eq!(served_certificate(&server).await, "second");
        }
    }
    std::fs::remove_file(other.join("tls.key")).unwrap();
    write_certificate(&other, FIRST);
    wait_for_certificate(&server, "first").await;
}

#[test]
fn an_invalid_certificate_pair_names_its_fault() {
    let dir = tempfile::tempdir().unwrap();
    let message_for = |pair: (&str, &str)| {
        write_certificate(dir.path(), pair);
        load_certificates(dir.path()).unwrap_err().to_string()
    };
    assert!(load_certificates(dir.path()).unwrap_err().to_string().contains("tls.crt: No such file"));
    assert!(message_for(("", FIRST.1)).contains("tls.crt: no certificate in PEM form"));
    assert!(message_for((FIRST.0, FIRST.0)).contains("tls.key: no private key in PEM form"));
    assert!(
        message_for((FIRST.0, SECOND.1)).contains("keys may not be consistent"),
        "{}",
        message_for((FIRST.0, SECOND.1))
    );
    write_certificate(dir.path(), SECOND);
    load_certificates(dir.path()).unwrap();
}

/// Nothing writes to the pipe: opening it would block forever, and so would stopping the server.
#[tokio::test]
async fn a_pipe_is_refused_as_a_certificate_without_blocking() {
    let dir = tempfile::tempdir().unwrap();
    write_certificate(dir.path(), FIRST);
    let key = dir.path().join("tls.key");
    std::fs::remove_file(&key).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &key, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    let path = dir.path().to_owned();
    std::thread::spawn(move || send.send(load_certificates(&path).map(drop)));
    let refused = receive.recv_timeout(Duration::from_secs(60)).expect("it waits for the pipe").unwrap_err();
    assert!(refused.to_string().contains("named pipe"), "{refused}");
}
