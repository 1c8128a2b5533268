//! Attacks on the server's time: model code that occupies the host's own functions, and a shutdown that is blocked.
//! Each ends in its time limit, and other clients are served meanwhile.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, ServerProcess, guest};
use serde_json::{Value, json};

/// The tolerance for a deadline of one second on a busy machine.
const LATE_MAX: Duration = Duration::from_secs(15);
/// The tolerance for a quick operation on a busy machine.
const QUICK_MAX: Duration = Duration::from_secs(2);

/// Publishes a version of `hostile` as the model `model`, with these behaviours when it loads and predicts.
fn publish(server: &ServerProcess, model: &str, load: &str, predict: &str) {
    let plugin = guest("hostile");
    let [named, load, predict] = [format!("model={model}"), format!("load={load}"), format!("predict={predict}")];
    server.saggar_ok(&["run", plugin.to_str().unwrap(), "--wait", "--", "train=well", &named, &load, &predict]);
}

/// Returns the longest response time of `/healthz`, over separate connections, while `attack` runs.
fn slowest_health<T>(server: &ServerProcess, attack: impl FnOnce() -> T) -> (Duration, T) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let health = scope.spawn(|| {
            let mut slowest = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                let began = Instant::now();
                assert_eq!(server.request("GET", "/healthz", HttpPayload::Nothing).status, 200);
                slowest = slowest.max(began.elapsed());
                std::thread::sleep(Duration::from_millis(5));
            }
            slowest
        });
        let done = attack();
        over.store(true, Ordering::Relaxed);
        (health.join().unwrap(), done)
    })
}

fn predict(server: &ServerProcess, model: &str, first: f64, deadline_ms: u64) -> (u16, Value) {
    ask(&format!("{}/models/{model}/predict", server.url()), first, deadline_ms).unwrap()
}

/// Returns the status and the body of a response.
fn ask(url: &str, first: f64, deadline_ms: u64) -> Option<(u16, Value)> {
    let input = json!({ "x": [first, 0.0, 0.0, 0.0] });
    let agent = ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build());
    let post = agent.post(url).header("x-saggar-deadline-ms", deadline_ms.to_string());
    let mut answer = post.send_json(&input).ok()?;
    Some((answer.status().as_u16(), answer.body_mut().read_json().unwrap_or(Value::Null)))
}

#[test]
fn a_model_that_keeps_the_host_busy_does_not_delay_other_requests() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    for way in ["late-slow-graphs", "late-slow-dispatches"] {
        publish(&server, way, "well", way);
        server.wait_for_version(way, 1);
        // Repeat until batches of this size are known to be quick, so that the next one is computed on the same thread.
        for _ in 0..50 {
            assert_eq!(predict(&server, way, 1.0, 10_000).0, 200, "{way}");
        }
        let (slowest, attacks) = slowest_health(&server, || {
            let attack = || {
                let began = Instant::now();
                (predict(&server, way, -1.0, 1_000), began.elapsed())
            };
            std::thread::scope(|scope| {
                let attacks = [scope.spawn(attack), scope.spawn(attack), scope.spawn(attack)];
                attacks.map(|attack| attack.join().unwrap())
            })
        });
        // Fewer run at a time than are sent: one can expire in the queue.
        let ends = [(504, json!("deadline")), (408, json!("deadline_queued"))];
        for ((status, answer), took) in &attacks {
            assert!(ends.contains(&(*status, answer["code"].clone())), "{way}: {status} {answer}");
            assert!(*took < LATE_MAX, "{way}: answered after {took:?}");
        }
        assert!(attacks.iter().any(|((status, _), _)| *status == 504), "{way}: one was computed: {attacks:?}");
        assert!(slowest < QUICK_MAX, "{way}: somebody else waited for {slowest:?}");
        assert_eq!(predict(&server, way, 1.0, 60_000).0, 200, "{way}: the model goes on");
    }
}

#[test]
fn a_model_that_never_loads_fails_in_time_and_delays_no_other() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--load-timeout", "3s"]);
    let began = Instant::now();
    publish(&server, "graphs", "slow-graphs", "well");
    publish(&server, "dispatches", "slow-dispatches", "well");
    publish(&server, "good", "well", "well");
    server.wait_for_version("good", 1);
    for model in ["graphs", "dispatches"] {
        let reason = server.wait_for(model, |server| {
            let model = server.request("GET", &format!("/api/v1/models/{model}"), HttpPayload::Nothing).json();
            let version = model["versions"].as_array()?.first()?.clone();
            (version["state"] == "FAILED").then(|| version["reason"].as_str().unwrap_or_default().to_owned())
        });
        assert!(reason.contains("DEADLINE"), "{model}: {reason}");
    }
    let all = began.elapsed();
    assert!(all < Duration::from_secs(90), "three short trainings and two loads took {all:?}");
}

/// Runs a prediction that does not end for ten minutes, and waits until the server computes it. It compiles no graph,
/// because compilers stop when the server shuts down.
fn keep_busy(server: &ServerProcess) {
    publish(server, "busy", "well", "late-loop");
    server.wait_for_version("busy", 1);
    let url = format!("{}/models/busy/predict", server.url());
    std::thread::spawn(move || ask(&url, -1.0, 600_000));
    // A request is in flight before the plugin has it, and a server that shuts down at that moment refuses it.
    let mut looks = 0;
    server.wait_for("the prediction", |server| {
        let in_flight = server.metric("saggar_predict_in_flight{model=\"busy\",version=\"1\"}");
        looks = if in_flight == Some(1.0) { looks + 1 } else { 0 };
        (looks == 10).then_some(())
    });
}

#[test]
fn a_second_signal_stops_the_server_immediately() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    keep_busy(&server);
    server.signal("-TERM");
    server.wait_for_log("shutting down");
    server.signal("-TERM");
    let status = server.wait_for_exit(Duration::from_secs(20)).unwrap();
    let log = std::fs::read_to_string(home.path().join("server.log")).unwrap();
    assert_eq!(status.code(), Some(143), "{status}\n{log}");
}

#[test]
fn a_signal_stops_the_server_within_the_grace_period_whatever_runs() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    keep_busy(&server);
    // Requests have 30 s to finish; then the work they wait for is interrupted.
    server.signal("-TERM");
    let status = server.wait_for_exit(Duration::from_secs(60)).unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn an_unfinished_model_load_does_not_delay_shutdown() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--load-timeout", "10m"]);
    publish(&server, "graphs", "slow-graphs", "well");
    server.wait_for("the load", |server| {
        let model = server.request("GET", "/api/v1/models/graphs", HttpPayload::Nothing).json();
        (model["versions"][0]["state"] == "LOADING").then_some(())
    });
    server.signal("-TERM");
    let status = server.wait_for_exit(Duration::from_secs(20)).unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn a_job_past_its_time_limit_is_killed_and_times_out() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let plugin = guest("hostile");
    let run = ["run", plugin.to_str().unwrap(), "--max-runtime", "1s", "--", "train=slow-graphs"];
    server.saggar_ok(&run);
    let job = server.wait_for_job("hostile-1");
    assert_eq!(job["state"], "TIMED_OUT", "{job}");
}
