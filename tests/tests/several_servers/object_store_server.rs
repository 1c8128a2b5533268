//! Servers whose objects are in a bucket.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use saggar_store::CheckpointStore;
use saggar_tests::s3::{FaultProxy, MotoServer, RacyServer, S3Fault, s3_address, s3_objects, s3_variables};
use saggar_tests::{HttpPayload, ServerProcess, binary, lenet};
use serde_json::Value;

/// Enough for some seconds of training.
const EPOCHS: &str = "epochs=60";

/// Returns a command of the binary whose objects are in the bucket of the server at this port.
fn command(arguments: &[&str], port: u16) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).env("SAGGAR_OBJECTS", s3_address("lab")).envs(s3_variables(port));
    command.env_remove("AWS_SESSION_TOKEN").env_remove("AWS_CA_BUNDLE").stdin(Stdio::null());
    command
}

/// Starts a server whose objects are in the bucket.
fn start(home: &Path, port: u16) -> ServerProcess {
    let mut command = command(&["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--home"], port);
    command.arg(home);
    ServerProcess::from_command(command, home)
}

fn submit(server: &ServerProcess, model: &str) -> String {
    submit_with(server, model, &["--checkpoint-every", "20steps"])
}

fn submit_with(server: &ServerProcess, model: &str, options: &[&str]) -> String {
    server.push_digits();
    let (plugin, model) = (lenet(), format!("model={model}"));
    let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", "3", "--retry", "3"];
    server.saggar_ok(&[&run[..], options, &["--", EPOCHS, &model]].concat()).trim().to_owned()
}

#[test]
fn a_killed_server_resumes_from_the_bucket_with_the_weights_of_a_run_on_local_files() {
    let Some(store) = MotoServer::start() else { return };
    let local = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(local.path());
    let job = submit(&server, "local");
    assert_eq!(server.wait_for_job(&job)["state"], "SUCCEEDED");
    let expected = server.weights_digest("local");
    drop(server);

    let home = tempfile::tempdir().unwrap();
    let server = start(home.path(), store.port());
    let job = submit(&server, "remote");
    server.wait_for("a checkpoint", |server| server.saggar_ok(&["logs", &job]).contains("checkpoint @").then_some(()));
    server.kill_and_wait();
    let id = std::fs::read_dir(home.path().join("objects")).unwrap().count();
    assert_eq!(id, 0, "objects are below the state directory");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let stored = runtime.block_on(store.objects("lab").list("checkpoints")).unwrap();
    assert!(stored.iter().any(|object| object.name.contains("/parts/")), "{stored:?}");

    let server = start(home.path(), store.port());
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    let log = server.saggar_ok(&["logs", &job]);
    assert!(log.contains("resumed from checkpoint @"), "{log}");
    server.wait_for_version("remote", 1);
    assert_eq!(server.weights_digest("remote"), expected);
    let checkpoints = CheckpointStore::new(store.objects("lab"));
    let verified = runtime.block_on(checkpoints.verify(ended["id"].as_str().unwrap())).unwrap();
    assert!(!verified.is_empty() && verified.iter().all(|found| found.outcome.is_ok()), "{verified:?}");
}

#[test]
fn requests_that_the_bucket_does_not_answer_can_be_repeated_and_attempts_repeat_theirs() {
    let Some(store) = MotoServer::start() else { return };
    let proxy = FaultProxy::start(store.port());
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path(), proxy.port());
    proxy.inject(S3Fault::Refuse(503, "SlowDown"), "PUT", "/blobs/", 7);
    let plugin = std::fs::read(lenet()).unwrap();
    let answer = server.request("POST", "/api/v1/plugins", HttpPayload::Bytes("application/wasm", &plugin));
    assert_eq!((answer.status, &answer.json()["code"]), (503, &"store_unavailable".into()), "{}", answer.text);
    assert!(answer.json()["error"] == "the store of objects does not answer", "{}", answer.text);
    // As many as one operation repeats.
    proxy.inject(S3Fault::Refuse(503, "SlowDown"), "GET", "/blobs/", 7);
    let job = submit(&server, "digits");
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["attempt"]), (&"SUCCEEDED".into(), &1.into()), "{ended}");
    let log = server.saggar_ok(&["logs", &job]);
    assert!(log.contains("s3://saggar/lab: object blobs/") && log.contains("repeated for up to 600 s"), "{log}");
}

/// Seconds of the outage below. `SAGGAR_OUTAGE_SECONDS` replaces them.
const OUTAGE_SECONDS: u64 = 10;

#[test]
fn a_training_that_ends_during_an_outage_of_the_bucket_publishes_after_it() {
    let Some(store) = MotoServer::start() else { return };
    let proxy = FaultProxy::start(store.port());
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path(), proxy.port());
    let seconds = std::env::var("SAGGAR_OUTAGE_SECONDS").map_or(OUTAGE_SECONDS, |text| text.parse().unwrap());
    let calm = submit_with(&server, "calm", &[]);
    assert_eq!(server.wait_for_job(&calm)["state"], "SUCCEEDED");
    server.wait_for_version("calm", 1);
    let image = serde_json::json!({ "image": vec![[9; 8]; 8] });
    let predict = || {
        let answer = server.request("POST", "/models/calm/predict", HttpPayload::Json(&image));
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    };
    let expected = predict();

    let job = submit_with(&server, "late", &[]);
    server.wait_for_step(&job, 10);
    let began = Instant::now();
    proxy.cut_off();
    let log = || server.saggar_ok(&["logs", &job]);
    let (mut predictions, mut longest) = (0, Duration::ZERO);
    let is_waiting = |log: &str| log.contains("model `late`") || log.contains("repeated for up to 600 s");
    while began.elapsed() < Duration::from_secs(seconds) || !is_waiting(&log()) {
        let sent = Instant::now();
        assert_eq!(predict(), expected);
        (predictions, longest) = (predictions + 1, longest.max(sent.elapsed()));
        assert_eq!(server.job(&job)["state"], "RUNNING");
        std::thread::sleep(Duration::from_millis(20));
    }
    let outage = began.elapsed();
    proxy.heal();
    let ended = server.wait_for_job(&job);
    println!(
        "an outage of {} s: {predictions} predictions, the longest {} ms; the training ended {} s after it",
        outage.as_secs(),
        longest.as_millis(),
        (began.elapsed() - outage).as_secs()
    );
    assert_eq!((&ended["state"], &ended["attempt"]), (&"SUCCEEDED".into(), &1.into()), "{ended}");
    server.wait_for_version("late", 1);
    assert_eq!(server.weights_digest("late"), server.weights_digest("calm"));
    let versions = |model: &str| server.get(&format!("/api/v1/models/{model}"))["versions"].as_array().unwrap().len();
    assert_eq!((versions("late"), versions("calm")), (1, 1), "nothing is published twice");
    let logged = |job: &str| server.get(&format!("/api/v1/jobs/{job}/logged"))["items"].as_array().unwrap().len();
    assert_eq!((logged(&job), logged(&calm) > 0), (logged(&calm), true), "what was logged waited too");
    let log = log();
    assert!(log.contains("the store answers again") && log.contains("checkpoint not saved: "), "{log}");
    assert_eq!(predict(), expected);
}

/// Runs a server that ends at its start, and returns its exit code and its message.
fn refused(mut command: Command) -> (Option<i32>, String) {
    let home = tempfile::tempdir().unwrap();
    let Output { status, stderr, .. } = command.arg("--home").arg(home.path()).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_server_does_not_start_without_a_store_that_it_can_rely_on() {
    let Some(racy) = RacyServer::start() else { return };
    let serve = ["serve", "--addr", "127.0.0.1:0", "--device", "cpu"];
    let (code, message) = refused(command(&serve, racy.port()));
    assert!(code == Some(5) && message.contains("s3://saggar/lab lost a race: 8 requests"), "{code:?} {message}");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (code, message) = refused(command(&serve, port));
    assert!(code == Some(6) && message.contains("AWS_ENDPOINT_URL"), "{code:?} {message}");
    let (code, message) = refused(command(&[&serve[..], &["--objects", "gs://bucket"]].concat(), port));
    assert!(code == Some(7) && message.contains("expected s3://BUCKET/PREFIX"), "{code:?} {message}");
    let mut without_secret = command(&serve, port);
    without_secret.env_remove("AWS_SECRET_ACCESS_KEY");
    let (code, message) = refused(without_secret);
    assert!(code == Some(7) && message.contains("AWS_SECRET_ACCESS_KEY is not: set both"), "{code:?} {message}");
}

/// Runs `saggar doctor`, and returns what it says about the store.
fn examine(port: u16) -> Vec<Value> {
    let home = tempfile::tempdir().unwrap();
    let mut command = command(&["doctor", "--json", "--home"], port);
    let output = command.arg(home.path()).output().unwrap();
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let is_about_store = |finding: &Value| finding["name"].as_str().unwrap().starts_with("objects");
    findings.into_iter().filter(is_about_store).collect()
}

#[test]
fn doctor_examines_the_store_and_says_how_to_fix_it() {
    let (Some(store), Some(racy)) = (MotoServer::start(), RacyServer::start()) else { return };
    let states = |findings: &[Value]| -> Vec<String> {
        findings
            .iter()
            .map(|it| format!("{} {}", it["name"].as_str().unwrap(), it["state"].as_str().unwrap()))
            .collect()
    };
    let findings = examine(store.port());
    assert_eq!(states(&findings), ["objects OK", "objects/race OK", "objects/time OK", "objects/clock OK"]);
    assert!(findings[2]["what"].as_str().unwrap().starts_with("a read takes "), "{findings:?}");
    let findings = examine(racy.port());
    assert_eq!(states(&findings)[0], "objects/race FAILED", "{findings:?}");
    let proxy = FaultProxy::start(store.port());
    proxy.inject(S3Fault::Refuse(403, "AccessDenied"), "PUT", "/", u32::MAX);
    let findings = examine(proxy.port());
    assert_eq!(states(&findings)[0], "objects FAILED");
    assert!(findings[0]["hint"].as_str().unwrap().contains("s3:PutObject"), "{findings:?}");
    let objects = s3_objects(store.port(), "lab");
    let left = tokio::runtime::Runtime::new().unwrap().block_on(objects.list("probes")).unwrap();
    assert!(left.is_empty(), "{left:?}");
}
