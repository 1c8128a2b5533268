//! Prediction jobs: a model's outputs for a whole dataset, stored as a dataset.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::process::Command;

use saggar_tests::{HttpPayload, ServerProcess, kill_9, root, worker_processes};
use serde_json::{Value, json};

/// Returns the labels in the array `label` of a safetensors file: little-endian integers of any width.
fn labels(file: &[u8]) -> Vec<i64> {
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let described: Value = serde_json::from_slice(&file[8..8 + header]).unwrap();
    let label = &described["label"];
    let place = |at: usize| 8 + header + label["data_offsets"][at].as_u64().unwrap() as usize;
    let bytes = &file[place(0)..place(1)];
    let count = label["shape"][0].as_u64().unwrap() as usize;
    let item = bytes.len() / count;
    bytes.chunks(item).map(|it| it.iter().rev().fold(0, |number, byte| number << 8 | i64::from(*byte))).collect()
}

#[test]
fn a_prediction_job_writes_its_outputs_as_a_dataset() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let predict = ["predict", "digits", "--in", "digits", "--split", "test", "--out", "answers", "--device", "cpu"];
    server.saggar_ok(&[&predict[..], &["--wait"]].concat());
    let job = server.get("/api/v1/jobs/predictions-1");
    assert_eq!((&job["state"], &job["task"]), (&json!("SUCCEEDED"), &json!("predict")), "{job}");
    assert_eq!((&job["spec"]["predict"]["version"], &job["spec"]["data"][0]["version"]), (&json!(1), &json!(1)));
    let version = server.get("/api/v1/models/digits")["versions"][0].clone();
    assert_eq!(job["spec"]["plugin"], version["plugin"], "the model's own plugin");
    assert!(job["gpu_seconds"].as_f64().unwrap() > 0.0 && job["step"] == job["steps_target"], "{job}");

    // One output per item, most of them correct according to the dataset's labels.
    let fetched = tempfile::tempdir().unwrap();
    let place = fetched.path().to_str().unwrap();
    server.saggar_ok(&["output", "get", "predictions-1", "-o", place]);
    let answered = labels(&std::fs::read(fetched.path().join("predictions.safetensors")).unwrap());
    assert_eq!(answered.len() as u64, job["step"].as_u64().unwrap());
    let whole = fetched.path().join("digits");
    server.saggar_ok(&["data", "export", "digits", "-o", whole.to_str().unwrap()]);
    // The requested split comes last, and a label is a byte.
    let stored = std::fs::read(whole.join("label.npy")).unwrap();
    let right: Vec<i64> = stored[stored.len() - answered.len()..].iter().map(|byte| i64::from(*byte)).collect();
    let matches = right.iter().zip(&answered).filter(|(right, answer)| right == answer).count();
    let accuracy = server.get("/api/v1/jobs/lenet-1")["metrics"]["validation/accuracy"].as_f64().unwrap();
    let expected = accuracy * answered.len() as f64;
    assert!((matches as f64 - expected).abs() < 0.5, "{matches} of {} are right, {expected} were", answered.len());
    let listed = server.get("/api/v1/datasets")["datasets"].clone();
    let answers = listed.as_array().unwrap().iter().find(|one| one["name"] == "answers").unwrap();
    assert_eq!(answers["items"], answered.len(), "{answers}");
    let fields: Vec<&Value> = answers["fields"].as_array().unwrap().iter().map(|field| &field["name"]).collect();
    assert!(fields.contains(&&json!("label")) && fields.contains(&&json!("probabilities")), "{answers}");

    // The same job again creates no second version, because its outputs are the same.
    server.saggar_ok(&[&predict[..], &["--wait"]].concat());
    let listed = server.get("/api/v1/datasets")["datasets"].clone();
    assert_eq!(listed.as_array().unwrap().iter().filter(|one| one["name"] == "answers").count(), 1);
}

/// Pushes the digits twenty times over as `many`, so that predicting them takes long enough to be interrupted.
fn push_many_digits(server: &ServerProcess) {
    let (folder, digits) = (tempfile::tempdir().unwrap(), root().join("examples/digits"));
    let unpacked = Command::new("gzip").arg("-dc").arg(digits.join("digits.csv.gz")).output().unwrap();
    assert!(unpacked.status.success());
    std::fs::write(folder.path().join("digits.csv"), unpacked.stdout.repeat(20)).unwrap();
    let description = std::fs::read_to_string(digits.join("dataset.json")).unwrap();
    std::fs::write(folder.path().join("dataset.json"), description.replace("digits.csv.gz", "digits.csv")).unwrap();
    server.saggar_ok(&["data", "push", folder.path().to_str().unwrap(), "--name", "many"]);
}

#[test]
fn a_killed_prediction_job_resumes_with_the_same_result() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    push_many_digits(&server);
    let spec = |out: &str| {
        json!({
            "project": "answers", "plugin": "0".repeat(64), "device": "cpu", "checkpoint_every": { "steps": 128 },
            "data": [{ "dataset": "many", "mount": "/data" }], "predict": { "model": "digits", "out": out },
        })
    };
    let calm = server.post("/api/v1/jobs", &spec("calm"))["name"].as_str().unwrap().to_owned();
    assert_eq!(server.wait_for_job(&calm)["state"], "SUCCEEDED");
    // The worker is killed once it has saved some outputs. On a fast machine the job can be over by then, which proves
    // nothing, so another job is started.
    let shaken = (0..20).find_map(|at| {
        let shaken = server.post("/api/v1/jobs", &spec(&format!("shaken-{at}")))["name"].as_str().unwrap().to_owned();
        server.wait_for("some answers", |server| {
            let job = server.get(&format!("/api/v1/jobs/{shaken}"));
            (job["step"].as_u64() >= Some(128) || job["state"] == "SUCCEEDED").then_some(())
        });
        for worker in worker_processes(server.pid()) {
            kill_9(worker);
        }
        let job = server.wait_for_job(&shaken);
        assert_eq!(job["state"], "SUCCEEDED", "{job}");
        (job["attempt"].as_u64() > Some(1)).then_some(shaken)
    });
    let shaken = shaken.expect("one of twenty jobs is killed before it is over");
    let answers = |job: &str| {
        let fetched = tempfile::tempdir().unwrap();
        server.saggar_ok(&["output", "get", job, "-o", fetched.path().to_str().unwrap()]);
        std::fs::read(fetched.path().join("predictions.safetensors")).unwrap()
    };
    assert!(answers(&calm) == answers(&shaken), "other bytes");
}

#[test]
fn unsupported_options_of_a_prediction_job_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let dataset = json!([{ "dataset": "digits", "mount": "/data" }]);
    let spec = |predict: Value, data: &Value| json!({ "project": "p", "plugin": "0".repeat(64), "device": "cpu", "data": data, "predict": predict });
    for (name, body, status, says) in [
        ("no model", spec(json!({ "model": "none" }), &dataset), 404, "model version none"),
        ("no version", spec(json!({ "model": "digits", "version": 9 }), &dataset), 404, "digits@9"),
        ("no data", spec(json!({ "model": "digits" }), &json!([])), 400, "one dataset"),
        ("a bad name", spec(json!({ "model": "digits", "out": "../x" }), &dataset), 400, "predict.out"),
        ("unknown", spec(json!({ "model": "digits", "batch": 3 }), &dataset), 400, "batch"),
    ] {
        let answer = server.request("POST", "/api/v1/jobs", HttpPayload::Json(&body));
        assert!(answer.status == status && answer.text.contains(says), "{name}: {} {}", answer.status, answer.text);
    }
    // An error that only the data shows fails the job.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.csv"), "1,2\n3,4\n").unwrap();
    let fields = json!([{ "name": "x", "columns": [0, 2], "dtype": "uint8" }]);
    let description = json!({ "format": "csv", "file": "x.csv", "fields": fields });
    std::fs::write(folder.path().join("dataset.json"), description.to_string()).unwrap();
    server.saggar_ok(&["data", "push", folder.path().to_str().unwrap(), "--name", "other"]);
    for (split, dataset, says) in [(None, "other", "input `image`"), (Some("none"), "digits", "split")] {
        let data = json!([{ "dataset": dataset, "mount": "/data" }]);
        let job = server.post("/api/v1/jobs", &spec(json!({ "model": "digits", "split": split }), &data));
        let ended = server.wait_for_job(job["name"].as_str().unwrap());
        assert_eq!((&ended["state"], &ended["reason"]), (&json!("FAILED"), &json!("BAD_DATASET")), "{ended}");
        assert!(ended["message"].as_str().unwrap().contains(says), "{}", ended["message"]);
    }
    let refused = server.saggar(&["predict", "digits", "--in", "digits", "-i", "image=1"]);
    assert_eq!(refused.status.code(), Some(2), "an input and a dataset");
}
