//! Worker processes of the binary that connect over TCP to a supervisor, which the test itself runs.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use saggar_clock::SystemClock;
use saggar_jobs::protocol::{PROTOCOL_VERSION, WorkerCommand};
use saggar_jobs::spec::WORKER_LOST;
use saggar_jobs::transport::{TcpWorkerListener, UnixWorkerListener, WorkerAddress, WorkerListener};
use saggar_jobs::worker::WorkerLocations;
use saggar_jobs::{
    CheckpointEvery, JobError, JobService, JobSpec, JobSubmission, LaunchRequest, LocalLauncher, SchedulerConfig,
    WorkerCredentials, WorkerHandle, WorkerLauncher,
};
use saggar_metrics::MetricsRegistry;
use saggar_store::records::{self, JobRecord};
use saggar_store::{AccessRights, JobState, ModelRegistry, ObjectStorage, StateDir};
use saggar_tests::{binary, guest, kill_9};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The model that the trainings publish.
const MODEL: &str = "steady";
/// Steps of a training that lasts for some seconds.
const STEPS: u64 = 3_000;
/// Maximum time of a wait before a test fails.
const WAIT_TIME_MAX: Duration = Duration::from_secs(180);

/// Opens connections to the server of a worker before the worker does.
type OpenConnections = fn(&WorkerCredentials) -> Vec<TcpStream>;

/// Starts workers as a server does, and records them.
#[derive(Debug)]
struct RecordingLauncher {
    workers: LocalLauncher,
    open_connections: OpenConnections,
    launches: Arc<Mutex<Vec<WorkerLaunch>>>,
}

/// A worker that was started, and the connections that were opened before.
#[derive(Debug)]
struct WorkerLaunch {
    address: WorkerAddress,
    process: u32,
    connections: Vec<TcpStream>,
}

impl WorkerLauncher for RecordingLauncher {
    fn launch(&self, request: &LaunchRequest) -> Result<Box<dyn WorkerHandle>, JobError> {
        let connections = (self.open_connections)(&request.credentials);
        let worker = self.workers.launch(request)?;
        let process = worker.description().strip_prefix("process ").unwrap().parse().unwrap();
        let address = request.credentials.address.clone();
        self.launches.lock().push(WorkerLaunch { address, process, connections });
        Ok(worker)
    }
}

/// The jobs of a server without its HTTP interface.
struct TestSupervisor {
    home: StateDir,
    jobs: JobService,
    launches: Arc<Mutex<Vec<WorkerLaunch>>>,
    shutdown: watch::Sender<bool>,
    /// Removed at the end.
    _directory: tempfile::TempDir,
}

impl TestSupervisor {
    fn start(listener: Box<dyn WorkerListener>, open_connections: OpenConnections) -> TestSupervisor {
        let directory = tempfile::tempdir().unwrap();
        let home = StateDir::open(directory.path()).unwrap();
        let (program, models) = (binary(), home.models());
        let home_dir = home.root().to_owned();
        let locations = WorkerLocations { home: home_dir, models, storage_quota: None, objects: None };
        let workers = LocalLauncher { program, locations };
        let launches: Arc<Mutex<Vec<WorkerLaunch>>> = Arc::default();
        let launcher = RecordingLauncher { workers, open_connections, launches: Arc::clone(&launches) };
        let jobs = JobService::new(
            records::open(home.database()).unwrap(),
            Arc::new(SystemClock),
            Arc::new(MetricsRegistry::new()),
            Arc::new(launcher),
            home.job_files(),
            SchedulerConfig::single_queue(1),
        );
        let jobs = jobs.with_worker_listener(listener);
        let (shutdown, stop_requests) = watch::channel(false);
        let running = jobs.clone();
        tokio::spawn(async move { running.run(stop_requests).await.unwrap() });
        TestSupervisor { home, jobs, launches, shutdown, _directory: directory }
    }

    /// Returns a supervisor whose workers connect to a free TCP port of this machine.
    fn start_on_tcp(open_connections: OpenConnections) -> TestSupervisor {
        let listener = TcpWorkerListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        TestSupervisor::start(Box::new(listener), open_connections)
    }

    /// Submits a training and returns its identifier.
    async fn submit(&self, steps: u64) -> String {
        let wasm = Bytes::from(std::fs::read(guest("steady")).unwrap());
        let plugin = ObjectStorage::local(&self.home.objects()).unwrap().put_blob(wasm).await.unwrap();
        let spec = JobSpec {
            device: "cpu".to_owned(),
            seed: 7,
            checkpoint_every: CheckpointEvery::Steps(50),
            parameters: json!({ "steps": steps, "model": MODEL }).as_object().cloned().unwrap(),
            ..JobSpec::new("steady", plugin.hex())
        };
        let submission = JobSubmission {
            spec,
            owner: None,
            rights: AccessRights::default(),
            pause: None,
            idempotency_key: None,
            trace: None,
        };
        self.jobs.submit(submission).await.unwrap().id
    }

    /// Returns the result of `find` once there is one. It is called after every change of a job.
    async fn wait_for<T>(&self, find: impl AsyncFn() -> Option<T>) -> T {
        let mut changes = self.jobs.subscribe_changes();
        let wait = async {
            loop {
                if let Some(found) = find().await {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(WAIT_TIME_MAX, wait).await.unwrap()
    }

    /// Waits until the job is over and returns it.
    async fn wait_for_end(&self, id: &str) -> JobRecord {
        self.wait_for(async || Some(self.jobs.get(id).await.unwrap()).filter(|job| job.state.is_final())).await
    }

    /// Waits until the job has saved a checkpoint.
    async fn wait_for_checkpoint(&self, id: &str) {
        self.wait_for(async || {
            let saved = self.jobs.events_of_kinds(id, &["CHECKPOINT_SAVED"]).await.unwrap();
            (!saved.is_empty()).then_some(())
        })
        .await;
    }

    /// Returns the file of the published weights.
    fn published_weights(&self) -> Vec<u8> {
        let (version, _) = ModelRegistry::new(self.home.models()).open(MODEL, None).unwrap();
        std::fs::read(version.weights()).unwrap()
    }
}

impl Drop for TestSupervisor {
    fn drop(&mut self) {
        self.shutdown.send_replace(true);
    }
}

/// Opens a connection to a worker's server and sends `text`.
fn connect_and_send(credentials: &WorkerCredentials, text: &str) -> TcpStream {
    let WorkerAddress::Tcp(address) = credentials.address else { panic!("{}", credentials.address) };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// Returns the first line of a worker of this attempt.
fn hello_line(credentials: &WorkerCredentials, protocol: u32, token: Value) -> String {
    let mut hello = serde_json::to_value(&credentials.lease).unwrap();
    (hello["protocol"], hello["token"]) = (protocol.into(), token);
    format!("{hello}\n")
}

/// Returns why the server refused a connection, which it has closed.
fn refusal(stream: TcpStream) -> String {
    stream.set_read_timeout(Some(WAIT_TIME_MAX)).unwrap();
    let mut lines = BufReader::new(stream).lines();
    let answer = lines.next().unwrap().unwrap();
    assert!(lines.next().is_none(), "more than {answer}");
    match serde_json::from_str(&answer).unwrap() {
        WorkerCommand::Refuse { protocol: PROTOCOL_VERSION, reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_training_killed_over_tcp_ends_with_the_weights_of_one_over_a_unix_socket() {
    let unix = TestSupervisor::start(Box::new(UnixWorkerListener::bind().unwrap()), |_| Vec::new());
    let undisturbed = unix.wait_for_end(&unix.submit(STEPS).await).await;
    assert_eq!((undisturbed.state, undisturbed.attempts), (JobState::Succeeded, 1), "{undisturbed:?}");

    let tcp = TestSupervisor::start_on_tcp(|_| Vec::new());
    let id = tcp.submit(STEPS).await;
    tcp.wait_for_checkpoint(&id).await;
    let killed = tcp.launches.lock()[0].process;
    assert!(kill_9(killed));
    let job = tcp.wait_for_end(&id).await;
    assert_eq!((job.state, job.attempts), (JobState::Succeeded, 2), "{job:?}");
    let attempts = tcp.jobs.attempts(&id).await.unwrap();
    assert_eq!(attempts[0].reason.code, WORKER_LOST, "{attempts:?}");
    let resumed = attempts[1].usage.first_step;
    assert!((1..STEPS).contains(&resumed), "resumed at step {resumed}: {attempts:?}");
    let launches = tcp.launches.lock();
    assert!(launches.iter().all(|launch| matches!(launch.address, WorkerAddress::Tcp(_))), "{launches:?}");
    assert!(launches.len() == 2 && launches[1].process != killed, "{launches:?}");
    assert!(tcp.published_weights() == unix.published_weights(), "the weights differ");
}

/// Opens a connection of each kind that is not the worker's: with a wrong token, of another version, of another
/// protocol, one that ends and one that sends nothing.
fn open_foreign_connections(credentials: &WorkerCredentials) -> Vec<TcpStream> {
    let guess = Value::from("0".repeat(64));
    let open = |text: &str| connect_and_send(credentials, text);
    let ended = open("");
    ended.shutdown(Shutdown::Write).unwrap();
    vec![
        open(&hello_line(credentials, PROTOCOL_VERSION, guess.clone())),
        open(&hello_line(credentials, PROTOCOL_VERSION + 1, guess)),
        open("GET / HTTP/1.1\r\n\r\n"),
        ended,
        open(""),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_gets_through_while_foreign_tcp_connections_are_refused() {
    let supervisor = TestSupervisor::start_on_tcp(open_foreign_connections);
    let job = supervisor.wait_for_end(&supervisor.submit(20).await).await;
    assert_eq!((job.state, job.attempts), (JobState::Succeeded, 1), "{job:?}");
    let connections = std::mem::take(&mut supervisor.launches.lock()[0].connections);
    let refusals = move || connections.into_iter().map(refusal).collect::<Vec<_>>();
    let refusals = tokio::task::spawn_blocking(refusals).await.unwrap();
    let expected = [
        "no worker is expected with this token",
        "no worker is expected with this token",
        "not a worker's hello: expected value",
        "not a worker's hello: the connection ended",
        "not a worker's hello: it did not come in time",
    ];
    assert_eq!(refusals.len(), expected.len());
    for (refusal, reason) in refusals.iter().zip(expected) {
        assert!(refusal.contains(reason), "{refusal}, expected: {reason}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_of_another_protocol_version_fails_its_job_with_both_versions() {
    let supervisor = TestSupervisor::start_on_tcp(|credentials| {
        let token = serde_json::to_value(&credentials.token).unwrap();
        vec![connect_and_send(credentials, &hello_line(credentials, PROTOCOL_VERSION + 1, token))]
    });
    let job = supervisor.wait_for_end(&supervisor.submit(20).await).await;
    assert_eq!((job.state, job.reason.code.as_str()), (JobState::Failed, "WORKER_REFUSED"), "{job:?}");
    for version in [PROTOCOL_VERSION, PROTOCOL_VERSION + 1] {
        assert!(job.reason.sentence.contains(&format!("version {version}")), "{job:?}");
    }
}
