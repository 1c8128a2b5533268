use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU32, Ordering};

use saggar_fetch::FetchPolicy;
use saggar_store::AccessRights;

use super::*;
use crate::limits::EVENT_BYTES_MAX;
use crate::line_reader::LineStream;
use crate::protocol::{AttemptConfig, WorkerEvent};
use crate::spec::JobSpec;
use crate::transport::{self, TcpWorkerListener, UnixWorkerListener};
use crate::worker::channel::{EventChannel, StartError};

fn unix() -> WorkerGateway {
    WorkerGateway::start(Box::new(UnixWorkerListener::bind().unwrap()))
}

fn tcp() -> WorkerGateway {
    WorkerGateway::start(Box::new(TcpWorkerListener::bind(([127, 0, 0, 1], 0).into()).unwrap()))
}

fn lease() -> JobLease {
    JobLease { job: "j".to_owned(), attempt: 2, epoch: 5, claim: "c".to_owned() }
}

fn start_command() -> WorkerCommand {
    let JobLease { job, attempt, epoch, .. } = lease();
    let spec = JobSpec::new("p", "0".repeat(64));
    let (name, jobs, rights) = ("p-1".to_owned(), BTreeMap::new(), AccessRights::default());
    WorkerCommand::Start(Box::new(AttemptConfig {
        job,
        name,
        attempt,
        epoch,
        rank: 0,
        rank_network: None,
        spec,
        jobs,
        kept_steps: Vec::new(),
        rights,
        pause: None,
        paused_from: None,
        fetch: FetchPolicy::default(),
        server_url: None,
        trace: None,
        renews_lease: false,
    }))
}

/// Returns the events until the end of the stream.
async fn read_events(events: EventReader) -> Vec<WorkerEvent> {
    let (mut lines, mut all) = (LineStream::new(Some(events)), Vec::new());
    while lines.read(EVENT_BYTES_MAX).await == LineRead::Complete {
        all.push(serde_json::from_slice(&lines.take_line()).unwrap());
    }
    all
}

/// Sends a line as a worker would, and returns the answer.
async fn answer_to(address: WorkerAddress, line: String) -> WorkerCommand {
    let ask = move || {
        let mut stream = transport::connect(&address).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        std::io::BufReader::new(stream).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}

/// A worker's last events arrive although it sends more than the connection buffers, and a command that it does not
/// wait for comes in between.
async fn check_events_of_a_worker(gateway: WorkerGateway) {
    const LINES: u32 = 4_000;
    let (credentials, mut pending) = gateway.expect(lease());
    let sent = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&sent);
    let worker = tokio::task::spawn_blocking(move || {
        let started = EventChannel::connect_to_supervisor(&credentials).unwrap();
        started.channel.redact(vec!["hunter2".to_owned()]);
        let line = format!("hunter2 {}", "x".repeat(8_000));
        for _ in 0..LINES {
            started.channel.send(&WorkerEvent::Log { level: "info".to_owned(), line: line.clone() });
            count.fetch_add(1, Ordering::Relaxed);
        }
        started.channel.send(&WorkerEvent::Finished { stopped: false });
        started.channel.close();
        started.channel.send(&WorkerEvent::Alive { heartbeat: 0 });
        started.config
    });
    let WorkerConnection { events, mut commands } = pending.wait().await.unwrap();
    commands.send(&start_command()).await.unwrap();
    // The worker waits for the supervisor as soon as the connection is full.
    let mut before = u32::MAX;
    while before != sent.load(Ordering::Relaxed) {
        before = sent.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(before < LINES, "{before} lines were sent and not read");
    commands.send(&WorkerCommand::Checkpoint).await.unwrap();
    let events = read_events(events).await;
    drop(commands);
    assert_eq!(events.len() as u32, LINES + 1);
    assert!(matches!(&events[0], WorkerEvent::Log { line, .. } if line.starts_with("[secret] x")));
    assert_eq!(events.last(), Some(&WorkerEvent::Finished { stopped: false }));
    assert_eq!(WorkerCommand::Start(Box::new(worker.await.unwrap())), start_command());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_events_arrive_through_a_unix_socket_at_the_supervisors_pace() {
    check_events_of_a_worker(unix()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_events_arrive_through_tcp_at_the_supervisors_pace() {
    check_events_of_a_worker(tcp()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_of_another_version_is_refused_with_the_reason() {
    for gateway in [unix(), tcp()] {
        let (credentials, mut pending) = gateway.expect(lease());
        let token = serde_json::to_string(&credentials.token).unwrap();
        let answer = answer_to(credentials.address, format!("{{\"protocol\":99,\"token\":{token},\"new\":1}}\n")).await;
        let WorkerCommand::Refuse { protocol: PROTOCOL_VERSION, reason } = answer else { panic!("{answer:?}") };
        assert!(reason.contains("version 99") && reason.contains("the same build"), "{reason}");
        assert_eq!(pending.wait().await.unwrap_err(), HelloError::OtherVersion { found: 99 });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_accepted_once_and_for_one_attempt() {
    let gateway = tcp();
    let (credentials, mut pending) = gateway.expect(lease());
    let hello = |token: &WorkerToken, lease: JobLease| {
        let hello = WorkerHello { protocol: PROTOCOL_VERSION, lease, token: token.clone() };
        format!("{}\n", serde_json::to_string(&hello).unwrap())
    };
    let address = || credentials.address.clone();
    let refused = |answer: WorkerCommand| match answer {
        WorkerCommand::Refuse { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    let guess = refused(answer_to(address(), hello(&WorkerToken::random(), lease())).await);
    assert!(guess.contains("no worker is expected"), "{guess}");
    assert!(refused(answer_to(address(), "GET / HTTP/1.1\n".to_owned()).await).contains("not a worker's hello"));
    let long = format!("{}\n", "x".repeat(HELLO_BYTES_MAX));
    assert!(refused(answer_to(address(), long).await).contains("more than 4096 bytes"));
    let other = JobLease { epoch: 6, ..lease() };
    let other = refused(answer_to(address(), hello(&credentials.token, other)).await);
    assert!(other.contains("attempt 2 of job j with epoch 6"), "{other}");
    assert!(matches!(pending.wait().await, Err(HelloError::OtherAttempt { .. })));
    let again = refused(answer_to(address(), hello(&credentials.token, lease())).await);
    assert!(again.contains("no worker is expected"), "{again}");
    let (late, pending) = gateway.expect(lease());
    drop(pending);
    let error = tokio::task::spawn_blocking(move || EventChannel::connect_to_supervisor(&late)).await.unwrap();
    assert!(matches!(error, Err(StartError::Refused(reason)) if reason.contains("no worker is expected")));
}
