//! Pictures found by gradients with respect to the input: the model that is opened stays as it is, the files that are
//! written are there, and the classifier believes them.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::{Path, PathBuf};

use saggar_tests::{Server, lenet, plugin};
use serde_json::Value;

const STEPS: usize = 300;

/// A server with a classifier that has learnt enough to be sure of anything.
fn start(home: &Path) -> Server {
    let server = Server::start(home);
    server.saggar_ok(&["data", "push", "examples/digits", "--name", "digits"]);
    let lenet = lenet();
    server.saggar_ok(&["run", lenet.to_str().unwrap(), "--data", "digits", "--seed", "7", "--wait", "--", "epochs=10"]);
    server.wait_for_version("digits", 1);
    server
}

fn run(server: &Server, seed: &str, parameters: &[&str]) -> Value {
    let component = plugin("input-opt");
    let run = ["run", component.to_str().unwrap(), "--data", "digits", "--seed", seed, "--"];
    let steps = format!("steps={STEPS}");
    let job = server.saggar_ok(&[&run[..], &[&steps, "target=3"], parameters].concat()).trim().to_owned();
    server.wait_for_job(&job)
}

fn output(home: &Path, job: &Value) -> PathBuf {
    home.join("jobs").join(job["id"].as_str().unwrap()).join("output/target-003.png")
}

/// What the classifier makes of the file: the label and its probability.
fn answer(server: &Server, file: &Path) -> (i64, f64) {
    let input = format!("image=@{}", file.display());
    let answer = server.saggar_ok(&["predict", "digits", "-i", &input, "--json"]);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    (answer["label"].as_i64().unwrap(), answer["probability"].as_f64().unwrap())
}

#[test]
fn a_classifier_is_sure_of_noise_and_of_a_changed_picture() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    let weights = std::fs::read(home.path().join("models/digits/1/weights.safetensors")).unwrap();

    let noise = run(&server, "1", &[]);
    let log = server.saggar_ok(&["logs", noise["name"].as_str().unwrap()]);
    assert_eq!(noise["state"], "SUCCEEDED", "{log}");
    let steps: Vec<(f64, f64)> = log.lines().filter_map(step).collect();
    assert_eq!(steps.len(), STEPS, "{log}");
    assert!(steps.iter().all(|(loss, p)| (loss + p.ln()).abs() < 1e-4 * loss.exp()), "{log}");
    let (label, probability) = answer(&server, &output(home.path(), &noise));
    assert!(label == 3 && probability > 0.99, "{label} {probability}\n{log}");

    // The same seed gives the same file, another one another.
    let file = |job: &Value| std::fs::read(output(home.path(), job)).unwrap();
    assert_eq!(file(&run(&server, "1", &[])), file(&noise));
    assert_ne!(file(&run(&server, "2", &[])), file(&noise));

    let changed = run(&server, "1", &["item=0", "version=1"]);
    let log = server.saggar_ok(&["logs", changed["name"].as_str().unwrap()]);
    assert!(log.contains("mean change of a pixel: 0."), "{log}");
    let (label, probability) = answer(&server, &output(home.path(), &changed));
    assert!(label == 3 && probability > 0.99, "{label} {probability}\n{log}");

    assert_eq!(std::fs::read(home.path().join("models/digits/1/weights.safetensors")).unwrap(), weights);
}

/// `0001 - loss: 2.751234 (0.063849)`
fn step(line: &str) -> Option<(f64, f64)> {
    let (loss, probability) = line.split_once(" - loss: ")?.1.split_once(" (")?;
    Some((loss.parse().ok()?, probability.strip_suffix(')')?.parse().ok()?))
}

#[test]
fn a_model_that_is_not_there_is_named() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::with_digits(home.path(), &[]);
    for (parameters, expected) in [
        (["classifier=faces"].as_slice(), "model `faces`: no version is published"),
        (&["version=7"], "model `digits`: version 7 is not published"),
    ] {
        let job = run(&server, "1", parameters);
        let log = server.saggar_ok(&["logs", job["name"].as_str().unwrap()]);
        assert_eq!(job["state"], "FAILED", "{log}");
        assert!(job["message"].as_str().unwrap().contains(expected), "{}", job["message"]);
    }
}
