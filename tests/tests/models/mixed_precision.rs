//! Trainings in mixed precision through the real binary: as accurate as in single precision, bit-identical after kills
//! and with several processes, and refused for an unknown precision.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::time::Duration;

use saggar_tests::{HttpPayload, ServerProcess, kill_9, plugin, worker_processes};
use serde_json::{Value, json};

/// Maximum difference in final accuracy: five of the 359 held-out digits.
const ACCURACY_APART_MAX: f64 = 0.015;

fn start(home: &std::path::Path) -> ServerProcess {
    let server = ServerProcess::start(home);
    server.push_digits();
    server
}

fn submit(server: &ServerProcess, name: &str, arguments: &[&str], parameters: &[&str]) -> String {
    let component = plugin(name);
    let run = ["run", component.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", "5"];
    let every = ["--retry", "100", "--checkpoint-every", "10steps"];
    server.saggar_ok(&[&run[..], &every, arguments, &["--"], parameters].concat()).trim().to_owned()
}

fn train(server: &ServerProcess, name: &str, arguments: &[&str], parameters: &[&str]) -> Value {
    let job = submit(server, name, arguments, parameters);
    let ended = server.wait_for_job(&job);
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}\n{}", server.saggar_ok(&["logs", &job]));
    ended
}

/// Returns the epoch table of a job's log.
fn epoch_table(server: &ServerProcess, job: &Value) -> String {
    let log = server.saggar_ok(&["logs", job["name"].as_str().unwrap()]);
    log.lines().skip_while(|line| !line.contains("validation/accuracy")).collect::<Vec<_>>().join("\n")
}

#[test]
fn mixed_precision_reaches_the_accuracy_of_single_precision() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    let parameters = ["epochs=8"];
    let single = train(&server, "lenet", &[], &parameters);
    let mixed = train(&server, "lenet", &["--precision", "mixed"], &parameters);
    let tables = format!("{}\n{}", epoch_table(&server, &single), epoch_table(&server, &mixed));
    let accuracy = |job: &Value| job["metrics"]["validation/accuracy"].as_f64().unwrap();
    assert!((accuracy(&single) - accuracy(&mixed)).abs() <= ACCURACY_APART_MAX, "{tables}");
    assert!(accuracy(&mixed) > 0.95, "{tables}");
    // The record contains a precision only if one was requested.
    assert_eq!(mixed["spec"]["precision"], json!("mixed"), "{mixed}");
    assert!(single["spec"].get("precision").is_none(), "{single}");
}

#[test]
fn a_killed_mixed_precision_training_ends_as_an_undisturbed_one() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    let mixed = ["--precision", "mixed"];
    train(&server, "mlp", &mixed, &["epochs=300", "unit=24", "batch=100", "model=calm"]);

    let job = submit(&server, "mlp", &mixed, &["epochs=300", "unit=24", "batch=100", "model=shaken"]);
    for kills in 1..=2 {
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
    train(&server, "mlp", &[], &["epochs=300", "unit=24", "batch=100", "model=single"]);
    assert_ne!(server.weights_digest("calm"), server.weights_digest("single"), "nothing was rounded");
}

#[test]
fn two_mixed_precision_processes_are_bit_identical_to_two_micro_batches() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    let run = |model: &str, replicas: &str| {
        let arguments = ["--precision", "mixed", "--replicas", replicas, "--shards", "2"];
        train(&server, "mlp", &arguments, &["epochs=3", "unit=24", "batch=100", &format!("model={model}")]);
        server.weights_digest(model)
    };
    assert_eq!(run("one", "1"), run("two", "2"));
}

#[test]
fn an_unknown_precision_is_refused_with_the_valid_ones() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let component = plugin("mlp");
    let refused = server.saggar(&["run", component.to_str().unwrap(), "--precision", "half"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("float32") && said.contains("mixed"), "{said}");
    let spec = json!({ "project": "p", "plugin": "0".repeat(64), "precision": "half" });
    let refused = server.request("POST", "/api/v1/jobs", HttpPayload::Json(&spec));
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(refused.text.contains("float32") && refused.text.contains("mixed"), "{}", refused.text);
}
