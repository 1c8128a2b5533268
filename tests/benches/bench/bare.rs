//! The baseline: a minimal server of the same framework with the same body. axum reads it, serde_json parses it into a
//! typed struct, and it responds with ten numbers. It avoids axum's `Json`, which tracks the path to each value and is
//! an eighth slower.

use std::io::BufRead;
use std::process::{Child, Command, Stdio};

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct BareRequest {
    x: Vec<f32>,
}

#[derive(Serialize)]
struct BareResponse {
    logits: [f32; 10],
}

/// A bare server in a separate process; dropping it kills the process.
#[derive(Debug)]
pub(crate) struct BareServer {
    child: Child,
    pub(crate) url: String,
}

impl BareServer {
    /// Starts this binary again as the bare server, or the one in `SAGGAR_BARE`, for a benchmark built without
    /// optimization. Returns `None` if there is no optimized build, because a slow baseline would make our ratio look
    /// better than it is.
    pub(crate) fn start() -> Option<BareServer> {
        let binary = match std::env::var_os("SAGGAR_BARE") {
            Some(binary) => binary.into(),
            None if cfg!(debug_assertions) => return None,
            None => std::env::current_exe().unwrap(),
        };
        let mut child = Command::new(binary).arg("--bare").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Some(BareServer { child, url: line.trim().to_owned() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for BareServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves on a free port, which it prints, until it is killed.
pub(crate) fn serve() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("http://{}/", listener.local_addr().unwrap());
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
        axum::serve(listener, Router::new().route("/", post(respond))).await.unwrap();
    });
}

async fn respond(body: Bytes) -> Response {
    let Ok(BareRequest { x }) = serde_json::from_slice(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let mut logits = [0.0; 10];
    logits.iter_mut().zip(x).for_each(|(logit, x)| *logit = x);
    let json = serde_json::to_vec(&BareResponse { logits }).unwrap();
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}
