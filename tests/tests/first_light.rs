//! The main job, as a user does it: push, run, swap, predict; on digits, and on MNIST where it is here.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{Payload, Server, lenet, shared};
use serde_json::{Value, json};

fn train(server: &Server, arguments: &[&str]) -> Value {
    let plugin = lenet();
    let mut run = vec!["run", plugin.to_str().unwrap(), "--device", "cpu", "--wait", "--json"];
    run.extend(arguments);
    let printed = server.saggar_ok(&run);
    serde_json::from_str(printed.lines().last().unwrap()).unwrap()
}

fn metric(job: &Value, name: &str) -> f64 {
    job["metrics"][name].as_f64().unwrap_or_else(|| panic!("{name} in {}", job["metrics"]))
}

#[test]
fn digits_are_learnt_served_and_predicted() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path());
    assert_eq!(server.request("POST", "/predict", Payload::Json(&json!({}))).status, 503, "no model yet");
    assert_eq!(server.saggar_ok(&["data", "push", "examples/digits", "--name", "digits"]).trim(), "digits/1");
    assert_eq!(server.saggar_ok(&["data", "push", "examples/digits", "--name", "digits"]).trim(), "digits/1");

    let job = train(&server, &["--project", "digits", "--data", "digits", "--seed", "7"]);
    assert_eq!(job["state"], "SUCCEEDED", "{job}");
    assert_eq!(job["name"], "digits-1");
    let accuracy = metric(&job, "validation/accuracy");
    assert!(accuracy >= 0.97, "held-out accuracy {accuracy}");

    server.wait_for_version("digits", 1);
    // Ten images that no training saw; of as many, at 97 in 100, one wrong answer is to be expected now and then.
    let mut right = 0;
    for digit in 0..10 {
        let image = format!("image=@examples/digits/held-out/{digit}.png");
        let printed = server.saggar_ok(&["predict", "digits", "-i", &image, "--json"]);
        let answer: Value = serde_json::from_str(&printed).unwrap();
        right += u32::from(answer["label"] == digit);
        let sum: f64 = answer["probabilities"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    }
    assert!(right >= 9, "{right} of 10 held-out digits");

    let one = json!([vec![[0; 8]; 8]]);
    let batch =
        server.request("POST", "/models/digits/predict", Payload::Json(&json!({"image": vec![vec![[0; 8]; 8]; 3]})));
    assert_eq!(batch.status, 200, "{}", batch.text);
    assert_eq!(batch.json()["label"].as_array().unwrap().len(), 3);
    assert_eq!(batch.header("x-saggar-model"), "digits@1");
    let bare = server.request("POST", "/", Payload::Json(&one));
    assert_eq!(bare.status, 200, "{}", bare.text);

    let listed = server.saggar_ok(&["ps", "-a"]);
    assert!(listed.contains("digits-1") && listed.contains("SUCCEEDED"), "{listed}");
    let log = server.saggar_ok(&["logs", "digits-1"]);
    assert!(log.contains("published digits@1"), "{log}");
    assert!(server.saggar_ok(&["status", "digits-1"]).contains("SUCCEEDED"));
    assert!(server.saggar_ok(&["models", "show", "digits"]).contains("image"));
    // What no name can have is not left out of one, or another model would be meant.
    for arguments in [["models", "show", "dig its"], ["models", "unload", "dig/its"], ["status", "-q", "digits?-1"]] {
        let refused = server.saggar(&arguments);
        assert_eq!(refused.status.code(), Some(3), "{arguments:?}: {refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(arguments[2]), "{refused:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_weights_and_another_seed_does_not() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path());
    server.saggar_ok(&["data", "push", "examples/digits", "--name", "digits"]);
    let weights = |seed: &str, model: &str| {
        let name = format!("model={model}");
        let job = train(&server, &["--data", "digits", "--seed", seed, "--", "epochs=2", &name]);
        assert_eq!(job["state"], "SUCCEEDED", "{job}");
        server.wait_for_version(model, 1);
        server.get(&format!("/api/v1/models/{model}"))["versions"][0]["weights"].as_str().unwrap().to_owned()
    };
    let first = weights("7", "a");
    assert_eq!(first, weights("7", "b"));
    assert_ne!(first, weights("8", "c"));
}

#[test]
fn exit_codes_are_as_tabled() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path());
    let code = |arguments: &[&str]| server.saggar(arguments).status.code();
    assert_eq!(code(&["status", "nothing-1"]), Some(3));
    assert_eq!(code(&["no-such-command"]), Some(2));
    assert_eq!(code(&["--host", "http://127.0.0.1:1", "ps"]), Some(6));
    assert_eq!(code(&["predict", "-i", "nonsense"]), Some(7));
    assert_eq!(code(&["doctor", "--device", "vulkan:77"]), Some(8));
    assert_eq!(code(&["data", "push", "no/such/folder"]), Some(3));
    let plugin = lenet();
    let plugin = plugin.to_str().unwrap();
    assert_eq!(code(&["run", plugin, "--data", "nothing"]), Some(3));
    server.saggar_ok(&["data", "push", "examples/digits", "--name", "digits"]);
    let run = ["run", plugin, "--data", "digits", "--wait"];
    assert_eq!(code(&[&run[..], &["--", "no_such_parameter=1"]].concat()), Some(20));
    assert_eq!(code(&[&run[..], &["--max-runtime", "1s", "--", "epochs=100000"]].concat()), Some(22));
    let error = server.saggar(&["--json", "status", "nothing-1"]);
    let error: Value = serde_json::from_slice(&error.stderr).unwrap();
    assert_eq!(error["error"]["code"], "not_found", "{error}");
}

#[test]
fn a_job_that_is_stopped_saves_its_state_and_is_cancelled() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path());
    server.saggar_ok(&["data", "push", "examples/digits", "--name", "digits"]);
    let plugin = lenet();
    let name = server.saggar_ok(&["run", plugin.to_str().unwrap(), "--data", "digits", "--", "epochs=100000"]);
    let name = name.trim();
    server.wait_for("steps", |server| {
        let job = server.get(&format!("/api/v1/jobs/{name}"));
        (job["step"].as_u64() > Some(0)).then_some(())
    });
    server.saggar_ok(&["stop", name]);
    let job = server.wait_for_job(name);
    assert_eq!(job["state"], "CANCELLED", "{job}");
    assert!(server.saggar_ok(&["logs", name]).contains("checkpoint @"));
}

#[test]
fn mnist_reaches_its_accuracy_within_three_epochs() {
    let Some(data) = shared("data/mnist") else { return };
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path());
    assert_eq!(server.saggar_ok(&["data", "push", data.to_str().unwrap(), "--name", "mnist"]).trim(), "mnist/1");
    let job = train(&server, &["--data", "mnist", "--", "epochs=3", "model=mnist"]);
    assert_eq!(job["state"], "SUCCEEDED", "{job}");
    let accuracy = metric(&job, "validation/accuracy");
    assert!(accuracy >= 0.985, "test accuracy {accuracy}");
}
