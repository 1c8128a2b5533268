//! Crashes: no data is lost and no result differs, whenever the worker or the server is killed.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, kill_9, lenet, worker_processes};
use serde_json::Value;

/// Number of kills of the worker in one training.
const KILLS: u64 = 20;
/// Enough for some seconds of training.
const EPOCHS: u32 = 120;
/// Maximum lifetime of a worker before it is killed.
const LIFE_MAX: Duration = Duration::from_millis(700);

/// Returns the n-th time up to `most` of a deterministic pseudo-random sequence (splitmix64).
fn kill_delay(n: u64, most: Duration) -> Duration {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Duration::from_millis((z ^ (z >> 31)) % (most.as_millis() as u64).max(1))
}

fn submit(server: &ServerProcess, model: &str, epochs: u32) -> String {
    let (plugin, model, epochs) = (lenet(), format!("model={model}"), format!("epochs={epochs}"));
    let plugin = plugin.to_str().unwrap();
    let run = ["run", plugin, "--data", "digits", "--device", "cpu", "--seed", "3", "--retry", "100"];
    let every = ["--checkpoint-every", "20steps", "--", &epochs, &model];
    server.saggar_ok(&[&run[..], &every].concat()).trim().to_owned()
}

#[test]
fn a_training_killed_twenty_times_ends_with_the_weights_of_an_undisturbed_one() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.push_digits();
    let job = submit(&server, "calm", EPOCHS);
    let calm = server.wait_for_job(&job);
    assert_eq!(calm["state"], "SUCCEEDED");
    // The sum of all lifetimes is shorter than an undisturbed training, so it cannot end before the last kill.
    let whole = Duration::from_secs_f64(calm["wall_seconds"].as_f64().unwrap());
    let life = (whole / (KILLS as u32)).min(LIFE_MAX);

    let job = submit(&server, "shaken", EPOCHS);
    let (mut kills, mut killed) = (0, None);
    while kills < KILLS {
        let state = server.get(&format!("/api/v1/jobs/{job}"));
        assert!(!matches!(state["state"].as_str(), Some("SUCCEEDED" | "FAILED")), "over after {kills} kills: {state}");
        if kills % 5 == 4 {
            // Even on a slow machine, some attempts make progress.
            let saved = |server: &ServerProcess| server.saggar_ok(&["logs", &job]).matches(" saved (").count();
            let before = saved(&server);
            server.wait_for("another checkpoint", |server| (saved(server) > before).then_some(()));
        }
        std::thread::sleep(kill_delay(kills, life));
        // Between two workers there can be none, and a killed worker stays in the process table until the server has
        // waited for it.
        if let [worker] = worker_processes(server.pid())[..]
            && killed.replace(worker) != Some(worker)
        {
            kills += u64::from(kill_9(worker));
        }
    }
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    assert_eq!(ended["attempt"].as_u64(), Some(KILLS + 1), "{ended}");
    assert_eq!(server.weights_digest("calm"), server.weights_digest("shaken"));

    let log = server.saggar_ok(&["logs", &job]);
    assert!(log.contains("resumed from checkpoint @"), "{log}");
    let metrics = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    assert!(metrics.contains("saggar_job_resumes_total{"), "{metrics}");
}

#[test]
fn a_worker_killed_in_its_first_seconds_resumes_from_a_checkpoint() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let mut spec = SteadyJob::with_steps(10_000_000).with_field("retry", 3).spec(&server);
    // The default interval, without an explicit setting.
    spec.as_object_mut().unwrap().remove("checkpoint_every");
    let job = server.post("/api/v1/jobs", &spec)["name"].as_str().unwrap().to_owned();
    server.wait_for_step(&job, 1);
    let began = Instant::now();
    server.wait_for("a checkpoint", |server| server.saggar_ok(&["logs", &job]).contains(" saved (").then_some(()));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "the first checkpoint came after {took:?}");
    server.wait_for("the worker", |server| match worker_processes(server.pid())[..] {
        [worker] => kill_9(worker).then_some(()),
        _ => None,
    });
    let resumed = server.wait_for("the next attempt", |server| {
        let log = server.saggar_ok(&["logs", &job]);
        let (_, step) = log.split_once("resumed from checkpoint @")?;
        step.lines().next()?.trim().parse::<u64>().ok()
    });
    assert!(resumed > 0);
    assert_eq!(server.job(&job)["spec"]["checkpoint_every"], "auto");
    server.saggar_ok(&["stop", &job]);
    server.wait_for_job(&job);
}

#[test]
fn a_killed_server_resumes_its_jobs() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.push_digits();
    let first = submit(&server, "before", EPOCHS / 4);
    assert_eq!(server.wait_for_job(&first)["state"], "SUCCEEDED");
    let calm = server.weights_digest("before");

    let running = submit(&server, "after", EPOCHS / 4);
    let queued = submit(&server, "later", EPOCHS / 4);
    server.wait_for("a checkpoint", |server| {
        server.saggar_ok(&["logs", &running]).contains("checkpoint @").then_some(())
    });
    let workers = worker_processes(server.pid());
    assert_eq!(workers.len(), 1);
    server.kill_and_wait();

    let server = ServerProcess::start(home.path());
    server.wait_for_version("before", 1);
    for job in [&running, &queued] {
        let ended = server.wait_for_job(job);
        assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    }
    assert_eq!(server.weights_digest("after"), calm);
    assert_eq!(server.weights_digest("later"), calm);
    let attempts = server.get(&format!("/api/v1/jobs/{running}"));
    let reasons: Vec<&Value> = attempts["attempts"].as_array().unwrap().iter().map(|a| &a["reason"]).collect();
    assert_eq!(reasons[0], "HOST_RESTART", "{attempts}");
    assert!(!std::path::Path::new(&format!("/proc/{}", workers[0])).exists(), "an orphan is left");
}

#[test]
fn running_and_queued_jobs_keep_their_order_across_a_crash() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--jobs", "3"]);
    let submit = |steps: u64| SteadyJob::with_steps(steps).submit(&server);
    let running: Vec<String> = (0..3).map(|_| submit(3_000)).collect();
    for job in &running {
        server.wait_for_step(job, 20);
    }
    let queued: Vec<String> = (0..10).map(|_| submit(5)).collect();
    for job in &queued {
        assert_eq!(server.job(job)["state"], "QUEUED", "it waits for one of the three");
    }
    server.kill_and_wait();

    let server = ServerProcess::start_with(home.path(), &["--jobs", "3"]);
    let all: Vec<Value> = running.iter().chain(&queued).map(|job| server.wait_for_job(job)).collect();
    for job in &all {
        assert_eq!(job["state"], "SUCCEEDED", "{job}");
        let ends = job["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "SUCCEEDED").count();
        assert_eq!(ends, 1, "done once: {job}");
    }
    for job in &all[..3] {
        assert_eq!((&job["attempt"], &job["attempts"][0]["reason"]), (&Value::from(2), &Value::from("HOST_RESTART")));
        assert!(job["attempts"][1]["first_step"].as_u64() >= Some(15), "it went on from a checkpoint: {job}");
    }
    let began: Vec<u64> = all[3..].iter().map(|job| job["attempts"][0]["started_ms"].as_u64().unwrap()).collect();
    assert!(began.is_sorted() && all[3..].iter().all(|job| job["attempt"] == 1), "the queue's order: {began:?}");
    let listed = server.get("/api/v1/jobs?limit=100");
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 13, "none lost, none doubled");
}

#[test]
fn a_second_server_on_one_state_directory_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let _server = ServerProcess::start(home.path());
    let second = std::process::Command::new(saggar_tests::binary())
        .args(["serve", "--addr", "127.0.0.1:0", "--home"])
        .arg(home.path())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(5), "{}", String::from_utf8_lossy(&second.stderr));
}
