//! A proxy that ends a connection at COMMIT.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::thread;

/// What happens at the next COMMIT.
const FORWARD: u8 = 0;
const CUT_ANSWER: u8 = 1;
const LOSE_REQUEST: u8 = 2;

/// The proxy. Its threads end with their connections and the test's process.
pub(super) struct AnswerCutter {
    port: u16,
    state: Arc<CutterState>,
}

#[derive(Default)]
struct CutterState {
    next: AtomicU8,
    cuts: AtomicU32,
}

impl AnswerCutter {
    /// Starts a proxy for the server at this port.
    pub(super) fn start(server: u16) -> AnswerCutter {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(CutterState::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let upstream = TcpStream::connect(("127.0.0.1", server)).unwrap();
                let (mut from, mut to) = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let state = Arc::clone(&shared);
                thread::spawn(move || forward(client, upstream, &state));
            }
        });
        AnswerCutter { port, state }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Forwards the next COMMIT, and ends the client's connection before the answer.
    pub(super) fn cut_next_commit(&self) {
        self.state.next.store(CUT_ANSWER, Ordering::SeqCst);
    }

    /// Ends both connections at the next COMMIT, which the server does not get.
    pub(super) fn lose_next_commit(&self) {
        self.state.next.store(LOSE_REQUEST, Ordering::SeqCst);
    }

    /// Returns the number of connections that it ended.
    pub(super) fn cuts(&self) -> u32 {
        self.state.cuts.load(Ordering::SeqCst)
    }
}

/// Forwards requests. The client sends COMMIT as a separate message and waits, so it is never split.
fn forward(mut client: TcpStream, mut upstream: TcpStream, state: &CutterState) {
    let mut buffer = [0; 1 << 16];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        let bytes = &buffer[..length];
        let is_commit = bytes.windows(7).any(|window| window == b"COMMIT\0");
        let action = if is_commit { state.next.swap(FORWARD, Ordering::SeqCst) } else { FORWARD };
        if action != FORWARD {
            state.cuts.fetch_add(1, Ordering::SeqCst);
            // The client's connection ends first, so that no answer passes.
            let _ = client.shutdown(Shutdown::Both);
        }
        if action == LOSE_REQUEST || upstream.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = upstream.shutdown(Shutdown::Write);
}
