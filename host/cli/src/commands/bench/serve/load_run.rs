//! One load: connections on a few threads that send requests until the end, and what came of it.
//!
//! Each thread has a separate runtime and a separate recorder, so that threads share nothing that is written while
//! requests are measured.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::Request;
use tokio::task::LocalSet;
use tokio::time::timeout_at;

use super::super::counter_random::CounterRandom;
use super::arrival_schedule::{ArrivalSchedule, DueRequests};
use super::client_cpu::ClientCpu;
use super::load_connection::{FailureCause, LoadConnection};
use super::load_recorder::{LatencyHistogram, LoadRecorder, MeasuredWindow};
use super::load_target::LoadTarget;
use super::request_encoding::EncodedRequest;
use super::request_mix::RequestMix;
use super::server_usage::ServerUsage;
use crate::client::ApiClient;
use crate::exit::{self, CliError};

/// How long a connection waits after it could not be opened.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
/// The time in which the threads start.
const START_PAUSE: Duration = Duration::from_millis(20);

/// What is sent, where, and for how long.
#[derive(Clone)]
pub(super) struct LoadPlan {
    pub(super) target: Arc<LoadTarget>,
    pub(super) mix: Arc<RequestMix>,
    /// The connections, each of which has at most one request at a time.
    pub(super) connections: usize,
    /// When requests are due; `None` for a closed loop.
    pub(super) arrivals: Option<ArrivalSchedule>,
    pub(super) warm_up: Duration,
    pub(super) duration: Duration,
    /// The longest time from when a request is due to its answer.
    pub(super) timeout: Duration,
    pub(super) threads: usize,
    pub(super) seed: u64,
}

/// What a load came to.
pub(super) struct LoadOutcome {
    pub(super) recorder: LoadRecorder,
    pub(super) client: ClientCpu,
    /// How late the schedule of an open loop was kept; `None` for a closed loop.
    pub(super) lateness: Option<LatencyHistogram>,
    /// What the server used meanwhile, or `None` if its metrics cannot be read.
    pub(super) server: Option<ServerUsage>,
}

/// Where the connections get their requests from.
#[derive(Clone)]
enum RequestSource {
    /// Each connection sends at once from the start until the end.
    Closed {
        start: Instant,
        end: Instant,
    },
    Open(Arc<DueRequests>),
}

impl RequestSource {
    /// Returns when the next request is due, or `None` at the end.
    async fn next(&self) -> Option<Instant> {
        match self {
            RequestSource::Closed { start, end } => {
                if Instant::now() < *start {
                    tokio::time::sleep_until((*start).into()).await;
                }
                Some(Instant::now()).filter(|now| now < end)
            }
            RequestSource::Open(due) => due.next().await,
        }
    }
}

/// Runs a load. `client` reads the server's metrics before and after. Blocks.
///
/// # Errors
/// Fails if the system cannot start a thread.
pub(super) fn run_load(plan: &LoadPlan, client: &ApiClient) -> Result<LoadOutcome, CliError> {
    let start = Instant::now() + START_PAUSE;
    let window = MeasuredWindow { start: start + plan.warm_up, length: plan.duration };
    let due = Arc::new(DueRequests::new());
    let source = match &plan.arrivals {
        None => RequestSource::Closed { start, end: window.end() },
        Some(_) => RequestSource::Open(Arc::clone(&due)),
    };
    let spawn_error =
        |error: std::io::Error| CliError::new(exit::UNEXPECTED, "thread", format!("a thread of the load: {error}"));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..plan.threads.min(plan.connections) {
            let (plan, source) = (plan.clone(), source.clone());
            let run = move || run_thread(&plan, number, &source, window);
            threads.push(
                std::thread::Builder::new()
                    .name(format!("load-{number}"))
                    .spawn_scoped(scope, run)
                    .map_err(spawn_error)?,
            );
        }
        let pacer = plan.arrivals.clone().map(|schedule| {
            let due = Arc::clone(&due);
            let fill = move || due.fill(schedule, start, window.end());
            std::thread::Builder::new().name("load-schedule".to_owned()).spawn_scoped(scope, fill).map_err(spawn_error)
        });
        let pacer = pacer.transpose()?;
        sleep_until(window.start);
        let (server_before, client_before) = (ServerUsage::read(client), ClientCpu::now());
        sleep_until(window.end());
        let client_used = ClientCpu::now().since(&client_before);
        let server = server_before.and_then(|before| Some(ServerUsage::read(client)?.since(&before)));
        let lateness = pacer.map(|pacer| pacer.join().expect("the schedule does not panic"));
        let mut recorder = LoadRecorder::new(window);
        for thread in threads {
            recorder.merge(thread.join().expect("the load does not panic")?);
        }
        Ok(LoadOutcome { recorder, client: client_used, lateness, server })
    })
}

fn sleep_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// Runs the connections whose number leaves this rest when it is divided by the number of threads.
fn run_thread(
    plan: &LoadPlan,
    number: usize,
    source: &RequestSource,
    window: MeasuredWindow,
) -> Result<LoadRecorder, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| CliError::new(exit::UNEXPECTED, "thread", format!("a runtime of the load: {error}")))?;
    let recorder = Rc::new(RefCell::new(LoadRecorder::new(window)));
    let local = LocalSet::new();
    for connection in (number..plan.connections).step_by(plan.threads) {
        let worker = LoadWorker {
            plan: plan.clone(),
            source: source.clone(),
            recorder: Rc::clone(&recorder),
            random: CounterRandom::new(plan.seed, connection as u32 + 1),
            connection: None,
        };
        local.spawn_local(worker.run());
    }
    runtime.block_on(local);
    Ok(Rc::into_inner(recorder).expect("the workers have ended").into_inner())
}

/// One connection and the requests on it.
struct LoadWorker {
    plan: LoadPlan,
    source: RequestSource,
    recorder: Rc<RefCell<LoadRecorder>>,
    random: CounterRandom,
    connection: Option<LoadConnection>,
}

impl LoadWorker {
    async fn run(mut self) {
        while let Some(due) = self.source.next().await {
            let deadline = due + self.plan.timeout;
            if Instant::now() >= deadline {
                self.recorder.borrow_mut().record_failure(due, Instant::now(), FailureCause::Timeout);
                continue;
            }
            if let Err(cause) = self.send_one(due, deadline).await {
                self.connection = if let FailureCause::Status { .. } | FailureCause::Grpc { .. } = cause {
                    self.connection
                } else {
                    None
                };
                let pauses = cause == FailureCause::Connect;
                self.recorder.borrow_mut().record_failure(due, Instant::now(), cause);
                if pauses {
                    tokio::time::sleep(CONNECT_PAUSE).await;
                }
            }
        }
    }

    async fn send_one(&mut self, due: Instant, deadline: Instant) -> Result<(), FailureCause> {
        let timeout = |_| FailureCause::Timeout;
        // A connection that the server closed between two requests failed none of them.
        let open = self.connection.take().filter(|connection| !connection.is_closed());
        let connection = match open {
            Some(connection) => self.connection.insert(connection),
            None => {
                let connected = timeout_at(deadline.into(), self.plan.target.connect()).await.map_err(timeout)?;
                self.connection.insert(connected.map_err(|_| FailureCause::Connect)?)
            }
        };
        let request = build_request(&self.plan.target, self.plan.mix.draw(&mut self.random));
        let headers = timeout_at(deadline.into(), connection.exchange(request)).await.map_err(timeout)??;
        self.recorder.borrow_mut().record_answer(due, Instant::now(), &headers);
        Ok(())
    }
}

fn build_request(target: &LoadTarget, encoded: &EncodedRequest) -> Request<Full<bytes::Bytes>> {
    let mut request = Request::new(Full::new(encoded.body.clone()));
    *request.method_mut() = hyper::Method::POST;
    *request.uri_mut() = encoded.uri.clone();
    let headers = request.headers_mut();
    *headers = target.headers().clone();
    headers.extend(encoded.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
    request
}
