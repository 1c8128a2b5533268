//! The guest library: its formulas on the real host, and all of its training options.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::time::Duration;

use saggar_tests::{ServerProcess, guest, kill_9, worker_processes};
use serde_json::{Value, json};

/// Every option with state: momentum and moments, two precisions, sums, means, random numbers, running statistics.
const EVERYTHING: [&str; 4] = ["optimizer=muon", "half=true", "accumulate=2", "average=0.9"];

fn start(home: &std::path::Path) -> ServerProcess {
    let server = ServerProcess::start(home);
    server.push_digits();
    server
}

fn submit(server: &ServerProcess, parameters: &[&str]) -> String {
    let plugin = guest("formulas");
    let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", "3", "--retry", "100"];
    let every = ["--checkpoint-every", "20steps", "--"];
    server.saggar_ok(&[&run[..], &every, parameters].concat()).trim().to_owned()
}

fn train(server: &ServerProcess, parameters: &[&str]) -> Value {
    let job = submit(server, parameters);
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "SUCCEEDED", "{parameters:?}: {}", server.saggar_ok(&["logs", &job]));
    ended
}

#[test]
fn the_formulas_of_the_guest_library_hold_on_the_host() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    let job = submit(&server, &[]);
    let ended = server.wait_for_job(&job);
    let log = server.saggar_ok(&["logs", &job]);
    assert_eq!(ended["state"], "SUCCEEDED", "{log}");
    assert!(log.contains("every formula holds"), "{log}");
}

#[test]
fn every_training_configuration_learns() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    let ways: [&[&str]; 6] =
        [&[], &["optimizer=sgd"], &["optimizer=muon"], &["half=true"], &["accumulate=2", "batch=16"], &["average=0.9"]];
    for way in ways {
        let job = train(&server, &[&["epochs=3"], way].concat());
        let accuracy = job["metrics"]["validation/accuracy"].as_f64().unwrap();
        assert!(accuracy > 0.9, "{way:?}: {accuracy}");
    }
}

#[test]
fn steps_whose_gradients_are_not_finite_are_skipped() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    // At first no gradient fits into float16.
    let job = train(&server, &["epochs=3", "half=true", "boost=10000"]);
    let metric = |name: &str| job["metrics"][name].as_f64().unwrap();
    assert!(metric("scale") < 65536.0, "{}", job["metrics"]);
    assert!(metric("validation/accuracy") > 0.9, "{}", job["metrics"]);
}

#[test]
fn early_stopping_ends_a_training_without_progress() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    let job = train(&server, &["epochs=200", "patience=1"]);
    let (step, steps) = (job["step"].as_u64().unwrap(), job["steps_target"].as_u64().unwrap());
    assert!(step < steps, "{step} of {steps} steps");
}

#[test]
fn a_killed_training_with_all_kinds_of_state_ends_as_an_undisturbed_one() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    train(&server, &[&["epochs=40", "model=calm"], &EVERYTHING[..]].concat());

    let job = submit(&server, &[&["epochs=40", "model=shaken"], &EVERYTHING[..]].concat());
    for kills in 1..=3 {
        server.wait_for("another checkpoint", |server| {
            let log = server.saggar_ok(&["logs", &job]);
            (log.matches("saved (").count() > kills).then_some(())
        });
        // At a time between two checkpoints.
        std::thread::sleep(Duration::from_millis(30 * kills as u64));
        for worker in worker_processes(server.pid()) {
            kill_9(worker);
        }
    }
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    assert!(ended["attempt"].as_u64() > Some(1), "nothing was killed: {ended}");
    assert_eq!(server.weights_digest("calm"), server.weights_digest("shaken"));
}

#[test]
fn a_nan_loss_in_the_training_loop_is_left_to_the_health_policy_of_the_host() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.saggar_ok(&["data", "push", "examples/digits", "--name", "digits"]);
    let mlp = saggar_tests::plugin("mlp");
    let run = |more: &[&str]| {
        let submit = ["run", mlp.to_str().unwrap(), "--data", "digits", "--device", "cpu"];
        let job = server.saggar_ok(&[&submit[..], more, &["--", "unit=8", "epochs=2", "lr=1e38"]].concat());
        server.wait_for_job(job.trim())
    };
    let ended = run(&[]);
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("FAILED"), &json!("NON_FINITE")), "{ended}");
    assert!(ended["message"].as_str().unwrap().contains("a lower learning rate usually helps"), "{ended}");
    let ended = run(&["--non-finite", "continue"]);
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
}
