//! Data steps: jobs that make dataset versions from other jobs' outputs or fetched files; and recipes.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::sync::atomic::Ordering;

use saggar_store::Digest;
use saggar_tests::{HttpPayload, ServerProcess, file_server, guest, root};
use serde_json::{Value, json};

#[test]
fn the_output_of_a_job_becomes_a_dataset_in_a_job() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let plugin = guest("stepper");
    server.saggar_ok(&["run", plugin.to_str().unwrap(), "--device", "cpu", "--wait", "--", "count=6"]);
    let add = ["data", "add", "stepper-1/table", "--as", "rows", "--as-job"];
    assert!(server.saggar_ok(&add).contains("rows-1 SUCCEEDED"));
    let made = json!({ "dataset": { "type": "dataset", "value": "rows/1" } });
    assert_eq!(server.job("rows-1")["step_outputs"], made);
    let datasets = server.get("/api/v1/datasets");
    assert_eq!((&datasets["datasets"][0]["name"], &datasets["datasets"][0]["items"]), (&json!("rows"), &json!(6)));

    // Again it is the same version, and the output of the data step is the input of another step.
    let job = server.saggar_ok(&[&add[..], &["--detach", "-q"]].concat());
    assert_eq!(server.wait_for_job(job.trim())["step_outputs"], made);
    assert_eq!(server.get("/api/v1/datasets")["datasets"].as_array().unwrap().len(), 1);

    let refusal = |step: Value, status: u16, says: &str| {
        let body = json!({ "project": "p", "data_step": step });
        let answer = server.request("POST", "/api/v1/jobs", HttpPayload::Json(&body));
        assert!(answer.status == status && answer.text.contains(says), "{} {}", answer.status, answer.text);
    };
    refusal(json!({ "dataset": "../x", "from": { "job": "stepper-1" } }), 400, "data_step.dataset");
    refusal(json!({ "dataset": "x", "from": { "job": "stepper-1", "path": "../y" } }), 400, "not a path");
    refusal(json!({ "dataset": "x", "from": { "job": "stepper-9" } }), 404, "stepper-9");
    refusal(json!({ "dataset": "x", "from": { "url": "http://a.b/c.csv", "sha256": "0" } }), 400, "64 hexadecimal");
    let url = json!({ "dataset": "x", "from": { "url": "http://a.b/c.csv", "sha256": "0".repeat(64) } });
    refusal(url.clone(), 403, "--fetch-from");
    let body = json!({ "project": "p", "plugin": "lenet", "data_step": url });
    assert_eq!(server.request("POST", "/api/v1/jobs", HttpPayload::Json(&body)).status, 400);
    // A path that the job did not write fails the job, and leaves nothing.
    let missing = server.saggar(&["data", "add", "stepper-1/elsewhere", "--as", "other", "--as-job"]);
    assert_eq!(missing.status.code(), Some(20));
    assert!(server.job("other-1")["message"].as_str().unwrap().contains("elsewhere"));
    assert_eq!(server.get("/api/v1/datasets")["datasets"].as_array().unwrap().len(), 1);
}

#[test]
fn the_server_fetches_a_dataset_once_and_verifies_it() {
    let table = std::fs::read(root().join("examples/digits/digits.csv.gz")).unwrap();
    let digest = Digest::of(&table).hex();
    let (address, requests) = file_server(table);
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--fetch-from", &address]);
    let url = format!("{address}/digits.csv.gz");
    let fetch = ["data", "fetch", &url, "--sha256", &digest, "--name", "far", "--on-server"];
    for number in 1..=2 {
        assert!(server.saggar_ok(&fetch).contains(&format!("far-{number} SUCCEEDED")));
        assert_eq!(server.job(&format!("far-{number}"))["step_outputs"]["dataset"]["value"], "far/1");
    }
    assert_eq!(requests.load(Ordering::Relaxed), 1, "the second job finds the version");
    assert_eq!(server.get("/api/v1/datasets")["datasets"][0]["items"], 1797);

    let other = "0".repeat(64);
    let lying = ["data", "fetch", &url, "--sha256", &other, "--name", "lie", "--on-server"];
    let refused = server.saggar(&lying);
    assert_eq!(refused.status.code(), Some(20));
    let job = server.job("lie-1");
    let message = job["message"].as_str().unwrap();
    assert!(message.contains(&digest) && message.contains(&other), "both digests are named: {message}");
    assert_eq!(job["reason"], "FETCH_FAILED");
    assert!(std::fs::read_dir(home.path().join("cache/fetch")).unwrap().next().is_none(), "no file stays");
    let elsewhere = ["data", "fetch", "http://127.0.0.1:9/x.csv", "--sha256", &other, "--name", "x", "--on-server"];
    let refused = server.saggar(&elsewhere);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
}

#[test]
fn recipes_store_datasets_without_a_network() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let listed: Value = serde_json::from_str(&server.saggar_ok(&["data", "recipe", "ls", "--json"])).unwrap();
    let recipe = |name: &str| listed.as_array().unwrap().iter().find(|it| it["recipe"] == name).unwrap().clone();
    assert_eq!(recipe("mnist")["files"][0], "train-images-idx3-ubyte");
    assert_eq!((&recipe("digits")["source"], &recipe("moons")["source"]), (&json!("program"), &json!("generated")));
    for name in ["digits", "moons", "spirals"] {
        server.saggar_ok(&["data", "recipe", "add", name]);
    }
    server.saggar_ok(&["data", "recipe", "add", "moons", "--name", "points"]);
    server.push_digits();
    let datasets = server.get("/api/v1/datasets");
    let datasets = datasets["datasets"].as_array().unwrap();
    let names: Vec<&str> = datasets.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["digits", "moons", "points", "spirals"],
        "the digits of the repository are those of the program"
    );
    assert_eq!(datasets[1]["digest"], datasets[2]["digest"], "the points are the same every time");
    // They are datasets to train on.
    let run = ["run", "tabular", "--data", "moons", "--device", "cpu", "--wait", "--", "epochs=2"];
    let ran = server.saggar(&run);
    assert!(ran.status.success(), "{ran:?}");

    let refused = server.saggar(&["data", "recipe", "add", "mnist"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(7) && said.contains("t10k-labels-idx1-ubyte"), "{said}");
    let unknown = server.saggar(&["data", "recipe", "add", "imagenet"]);
    assert!(unknown.status.code() == Some(3) && String::from_utf8_lossy(&unknown.stderr).contains("fashion-mnist"));
}
