//! A collector of OpenTelemetry traces: an HTTP server that keeps the bodies that are posted to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::inference_clients::client_output;

/// A request that the collector received.
#[derive(Clone, Debug)]
pub struct CollectedRequest {
    /// The request line and the headers, each a line, with names in lower case.
    pub head: Vec<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// A collector at a free port of this machine.
#[derive(Debug)]
pub struct TraceCollector {
    port: u16,
    status: Arc<AtomicU16>,
    requests: Arc<Mutex<Vec<CollectedRequest>>>,
}

impl TraceCollector {
    /// Starts a collector that answers 200.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start() -> TraceCollector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("a bound socket").port();
        let (status, requests) = (Arc::new(AtomicU16::new(200)), Arc::new(Mutex::new(Vec::new())));
        let collector = TraceCollector { port, status: Arc::clone(&status), requests: Arc::clone(&requests) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (status, requests) = (Arc::clone(&status), Arc::clone(&requests));
                std::thread::spawn(move || {
                    // A client that closes the connection ends it.
                    while let Some(request) = stream.try_clone().ok().and_then(|stream| receive(&stream)) {
                        requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                        let status = status.load(Ordering::Acquire);
                        let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
                        if (&stream).write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        collector
    }

    /// Returns its URL, without a path.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Answers with this status from now on.
    pub fn answer_with(&self, status: u16) {
        self.status.store(status, Ordering::Release);
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<CollectedRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the spans so far, read with OpenTelemetry's own messages by `tests/clients/otlp_spans.py`.
    ///
    /// # Panics
    /// If a request is not valid.
    pub fn spans(&self) -> Vec<Value> {
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        let mut paths = Vec::new();
        for (at, request) in self.requests().iter().enumerate() {
            let path = directory.path().join(at.to_string());
            std::fs::write(&path, &request.body).expect("a writable directory");
            paths.push(path.to_str().expect("a path that is text").to_owned());
        }
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let printed = client_output("tests/clients/observability.txt", "otlp_spans.py", &paths);
        serde_json::from_str(&printed).expect("JSON")
    }
}

fn receive(stream: &TcpStream) -> Option<CollectedRequest> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|&bytes| bytes > 0)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let line = match line.split_once(':') {
            Some((name, value)) => format!("{}:{value}", name.to_ascii_lowercase()),
            None => line.to_owned(),
        };
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        head.push(line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(CollectedRequest { head, body })
}
