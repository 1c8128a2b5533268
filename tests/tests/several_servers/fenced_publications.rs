//! Versions of models that a job publishes while it loses its lease: nothing of an attempt that was replaced becomes visible.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::process::Command;
use std::time::{Duration, Instant};

use saggar_store::JobState;
use saggar_store::records::{self, JobFilter, PendingPublication};
use saggar_tests::s3::{FaultProxy, S3Fault};
use saggar_tests::{BucketCluster, HttpPayload, ServerProcess, SteadyJob, worker_processes};
use serde_json::{Value, json};

/// Time from the stop of a server until another one has begun the next attempt of its job.
const TAKE_OVER_MAX: Duration = Duration::from_secs(30);

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "kill -{name} {pid}");
}

fn object_names(cluster: &BucketCluster, prefix: &str) -> Vec<String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listed = runtime.block_on(cluster.store.objects("lab").list(prefix)).unwrap();
    listed.into_iter().map(|object| object.name).collect()
}

/// Returns the folders of the parts of versions: one for each publication that has begun.
fn part_folders(cluster: &BucketCluster) -> Vec<String> {
    let mut folders: Vec<String> = object_names(cluster, "models-parts")
        .iter()
        .filter_map(|name| Some(name.rsplit_once('/')?.0.to_owned()))
        .collect();
    folders.dedup();
    folders
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

fn wait_for_worker(server: &ServerProcess) -> u32 {
    server.wait_for("a worker", |server| worker_processes(server.pid()).first().copied())
}

/// Waits until a server has a version of the model. `steady` trains and cannot predict, so it is not served.
fn wait_for_the_version(server: &ServerProcess) {
    server.wait_for("the version", |server| {
        let found = server.request("GET", "/api/v1/models/net", HttpPayload::Nothing).json();
        (found["versions"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
}

/// The attempt is stopped while it sends the files of its version, which it may publish at that moment. Its job is taken over,
/// and then it continues.
#[test]
fn a_publication_of_a_stopped_worker_whose_job_was_taken_over_is_refused_and_leaves_nothing() {
    let Some(cluster) = BucketCluster::start() else { return };
    let proxy = FaultProxy::start(cluster.store.port());
    let a = cluster.start_server_at("a", proxy.port(), &[]);
    // The worker has looked whether it owns the job, and sends the first file again and again.
    proxy.inject(S3Fault::Refuse(503, "SlowDown"), "PUT", "models-parts/", u32::MAX);
    let job = SteadyJob::with_steps(20).with_parameter("model", "net").submit(&a);
    let worker = wait_for_worker(&a);
    a.wait_for("the first file", |_| (proxy.requests("PUT", "models-parts/") > 0).then_some(()));
    signal("STOP", worker);
    signal("STOP", a.pid());
    proxy.heal();
    let stopped_at = Instant::now();
    // Servers run each other's jobs if they reach the bucket at the same address.
    let b = cluster.start_server_at("b", proxy.port(), &[]);
    b.wait_for("the next attempt", |server| (server.job(&job)["attempt"] == 2).then_some(()));
    println!("taken over after {:.1} s", stopped_at.elapsed().as_secs_f64());
    assert!(stopped_at.elapsed() < TAKE_OVER_MAX, "{:?}", stopped_at.elapsed());
    assert_eq!(b.wait_for_job(&job)["state"], "SUCCEEDED");
    wait_for_the_version(&b);
    let of_successor = object_names(&cluster, "models/net");
    // The worker continues first: it sends everything, and asks its server, which is stopped.
    signal("CONT", worker);
    b.wait_for("the files of both attempts", |_| {
        let indexes =
            object_names(&cluster, "models-parts").iter().filter(|name| name.ends_with("/index.json")).count();
        (indexes == 2).then_some(())
    });
    signal("CONT", a.pid());
    a.wait_for("the worker's end", |_| (!is_alive(worker)).then_some(()));
    a.wait_for_log("lost its lease has ended");
    assert_eq!(object_names(&cluster, "models/net"), of_successor, "no other version became visible");
    assert_eq!(part_folders(&cluster).len(), 1, "its files were removed: {:?}", part_folders(&cluster));
    let records = records::open(cluster.database.url()).unwrap();
    assert_eq!(records.unfinished_publications().unwrap(), []);
    wait_for_the_version(&a);
    wait_for_the_version(&b);
    let attempts = b.job(&job)["attempts"].clone();
    let servers: Vec<&Value> = attempts.as_array().unwrap().iter().map(|attempt| &attempt["server"]).collect();
    assert_eq!((servers, &b.job(&job)["server"]), (vec![&json!("a"), &json!("b")], &json!("b")));
    let listed = a.saggar_ok(&["ps", "-a"]);
    assert!(
        listed.contains("HOSTS") && listed.lines().any(|line| line.starts_with(&job) && line.ends_with(" b")),
        "{listed}"
    );
    let status = a.saggar_ok(&["status", &job]);
    assert!(status.lines().any(|line| line.split_whitespace().eq(["hosts", "b"])), "{status}");
}

/// A worker is killed after its publication was registered, and before the version is visible.
#[test]
fn a_version_whose_publication_was_registered_becomes_visible_although_its_worker_is_gone() {
    let Some(cluster) = BucketCluster::start() else { return };
    let proxy = FaultProxy::start(cluster.store.port());
    let a = cluster.start_server_at("a", proxy.port(), &[]);
    // The index that makes the version visible cannot be created through this proxy.
    proxy.inject(S3Fault::Cut, "PUT", "models/net/", u32::MAX);
    let job = SteadyJob::with_steps(5).with_parameter("model", "net").with_field("retry", 0).submit(&a);
    let worker = wait_for_worker(&a);
    let records = records::open(cluster.database.url()).unwrap();
    a.wait_for("the registration", |_| {
        let listed = records.list(&JobFilter::default()).unwrap();
        let is_running = listed.iter().any(|job| job.state == JobState::Running);
        (is_running && proxy.requests("PUT", "models/net/") > 0).then_some(())
    });
    assert_eq!(records.unfinished_publications().unwrap(), [], "the attempt can still complete it");
    assert!(object_names(&cluster, "models/net").is_empty());
    signal("KILL", worker);
    let b = cluster.start_server_at("b", proxy.port(), &[]);
    assert_eq!(a.wait_for_job(&job)["state"], "FAILED");
    proxy.heal();
    wait_for_the_version(&b);
    b.wait_for_log("the publication of a job that has ended was completed");
    b.wait_for("the end of the publication", |_| records.unfinished_publications().unwrap().is_empty().then_some(()));
    assert_eq!((object_names(&cluster, "models/net").len(), part_folders(&cluster).len()), (1, 1));
    // One that nobody sent anything of is forgotten.
    let lost = PendingPublication { id: "none".to_owned(), model: "net".to_owned(), version: 9 };
    assert!(!records.renumber_publication(&lost, 10).unwrap());
}
