//! Open-loop load: requests are sent when they are due, whether or not earlier ones were answered, like the clients of
//! a server that is too slow. Latency is measured from the time a request was due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// Requests due within one tick are sent together.
const TICK: Duration = Duration::from_millis(2);
/// Maximum number of connections; a request without a free connection is counted as not sent.
const CONNECTIONS_MAX: usize = 2000;
/// Time limit for the last responses.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The results of the requests that were due.
#[derive(Debug, Default)]
pub(crate) struct OpenLoopResult {
    pub(crate) due: u64,
    /// Number of responses by status; 0 means a broken connection.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Seconds from the time a request was due to its response of 200.
    pub(crate) answered: Vec<f64>,
    /// Requests without a free connection.
    pub(crate) unsent: u64,
}

#[derive(Default)]
struct OpenLoopState {
    idle: Mutex<Vec<TcpStream>>,
    outcome: Mutex<OpenLoopResult>,
    open: std::sync::atomic::AtomicUsize,
}

/// Sends `rate` requests per second for `seconds`.
pub(crate) fn run(port: u16, request: &[u8], rate: f64, seconds: f64) -> OpenLoopResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let shared = Arc::new(OpenLoopState::default());
    runtime.block_on(send(port, request.into(), rate, seconds, Arc::clone(&shared)));
    drop(runtime);
    std::mem::take(&mut *shared.outcome.lock())
}

async fn send(port: u16, request: Arc<[u8]>, rate: f64, seconds: f64, shared: Arc<OpenLoopState>) {
    let began = Instant::now();
    let mut ticks = interval(TICK);
    // A late tick sends all requests that became due, so the rate is kept.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut sent, mut tasks) = (0, tokio::task::JoinSet::new());
    while began.elapsed().as_secs_f64() < seconds {
        ticks.tick().await;
        let due = (began.elapsed().as_secs_f64() * rate) as u64;
        for number in sent..due {
            let at = began + Duration::from_secs_f64(number as f64 / rate);
            tasks.spawn(send_one(port, Arc::clone(&request), at, Arc::clone(&shared)));
        }
        sent = due;
        while tasks.try_join_next().is_some() {}
    }
    let _ = timeout(DRAIN_TIMEOUT, async { while tasks.join_next().await.is_some() {} }).await;
    shared.outcome.lock().due = sent;
}

async fn send_one(port: u16, request: Arc<[u8]>, due: Instant, shared: Arc<OpenLoopState>) {
    use std::sync::atomic::Ordering::AcqRel;
    let idle = shared.idle.lock().pop();
    let mut stream = match idle {
        Some(stream) => stream,
        None if shared.open.fetch_add(1, AcqRel) < CONNECTIONS_MAX => {
            match TcpStream::connect(("127.0.0.1", port)).await {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    stream
                }
                Err(_) => return shared.record_result(0, due),
            }
        }
        None => {
            shared.open.fetch_sub(1, AcqRel);
            shared.outcome.lock().unsent += 1;
            return;
        }
    };
    match exchange(&mut stream, &request).await {
        Ok(status) => {
            shared.record_result(status, due);
            shared.idle.lock().push(stream);
        }
        Err(_) => {
            shared.open.fetch_sub(1, AcqRel);
            shared.record_result(0, due);
        }
    }
}

async fn exchange(stream: &mut TcpStream, request: &[u8]) -> std::io::Result<u16> {
    stream.write_all(request).await?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&buffer[..count]);
        if let Some((status, length)) = crate::client::parse_response(&bytes)?
            && bytes.len() >= length
        {
            return Ok(status);
        }
    }
}

impl OpenLoopState {
    fn record_result(&self, status: u16, due: Instant) {
        let mut outcome = self.outcome.lock();
        *outcome.statuses.entry(status).or_default() += 1;
        if status == 200 {
            outcome.answered.push(due.elapsed().as_secs_f64());
        }
    }
}
