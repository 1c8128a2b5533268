//! Attacks on access control, against the real binary: actions that a key has no right to, through every interface.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use saggar_tests::{HttpPayload, HttpResponse, ServerProcess, SteadyJob, binary, guest};
use serde_json::{Value, json};

/// Creates a key and returns its text.
fn create(home: &Path, name: &str, scopes: &str, project: Option<&str>) -> String {
    let mut command = Command::new(binary());
    command.args(["key", "create", name, "--scope", scopes, "--home"]).arg(home);
    let output = command.args(project.iter().flat_map(|project| ["--project", project])).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Starts a server that requires keys. By default, requests use an admin key.
fn start_with_keys(home: &Path) -> ServerProcess {
    let boss = create(home, "boss", "admin", None);
    ServerProcess::start_with(home, &["--require-keys"]).with_key(&boss)
}

fn ask(server: &ServerProcess, key: &str, method: &str, path: &str, body: &Value) -> HttpResponse {
    let payload = if body.is_null() { HttpPayload::Nothing } else { HttpPayload::Json(body) };
    server.request_as(Some(key), method, path, payload)
}

/// Runs a job of `steady` with this key, and returns it when it has finished.
fn run(server: &ServerProcess, key: &str, job: &SteadyJob) -> Value {
    let answer = ask(server, key, "POST", "/api/v1/jobs", &job.spec(server));
    assert_eq!(answer.status, 201, "{}", answer.text);
    server.wait_for_job(answer.json()["name"].as_str().unwrap())
}

/// Returns the audit log entries of this action: who, subject, result.
fn audit_entries(home: &Path, action: &str) -> Vec<[String; 3]> {
    let text = std::fs::read_to_string(home.join("audit.log")).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let kind = action.split('.').next().unwrap().to_owned();
    let fields = |line: Value| [&line["who"], &line[&kind], &line["result"]].map(|it| it.as_str().unwrap().to_owned());
    lines.filter(|line| line["action"] == action).map(fields).collect()
}

fn contains_entry(lines: &[[String; 3]], wanted: [&str; 3]) -> bool {
    lines.iter().any(|line| *line == wanted)
}

/// Serves a model that was published with an admin key.
fn serve_matmul(server: &ServerProcess) {
    server.saggar_ok(&["run", guest("matmul").to_str().unwrap(), "--device", "cpu", "--wait"]);
    server.wait_for_version("matmul", 1);
}

fn pixels() -> Value {
    json!({ "x": vec![0.5; 784] })
}

/// Returns the raw response to a prediction of `matmul` with an additional header.
fn predict_with(server: &ServerProcess, key: &str, header: &str) -> String {
    let (body, address) = (pixels().to_string(), server.url().trim_start_matches("http://"));
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /models/matmul/predict HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\nconnection: close\r\n{header}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_job_cannot_publish_to_the_model_of_another_project() {
    let home = tempfile::tempdir().unwrap();
    let server = start_with_keys(home.path());
    serve_matmul(&server);
    let evil = create(home.path(), "evil", "jobs:write", Some("evil"));
    let trusted = create(home.path(), "trusted", "jobs:write,models:write", None);
    let versions = || std::fs::read_dir(home.path().join("models/matmul")).unwrap().count();
    let before = versions();
    let publish = |project: &str, model: &str| {
        SteadyJob::with_steps(6).with_field("project", project).with_parameter("model", model)
    };
    let refused = run(&server, &evil, &publish("evil", "matmul"));
    assert_eq!(refused["state"], "FAILED", "{refused}");
    let message = refused["message"].as_str().unwrap();
    for words in ["matmul", "key evil lacks the scope models:write", "saggar key create NAME --scope models:write"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    assert_eq!(versions(), before);
    assert_eq!(server.get("/api/v1/models/matmul")["serving"], 1);
    let name = refused["name"].as_str().unwrap();
    assert!(!server.checkpoints(name).is_empty(), "what it has learnt stays");
    // A new model belongs to its project, and jobs of the project can publish further versions.
    for version in 1..=2 {
        let seed = publish("evil", "own").with_field("seed", version);
        assert_eq!(run(&server, &evil, &seed)["state"], "SUCCEEDED");
    }
    let other = create(home.path(), "other", "jobs:write", Some("other"));
    assert_eq!(run(&server, &other, &publish("other", "own"))["state"], "FAILED");
    assert_eq!(run(&server, &trusted, &publish("any", "matmul"))["state"], "SUCCEEDED");
    let log = audit_entries(home.path(), "model.publish");
    for line in [
        ["key:evil", "matmul", "refused"],
        ["key:evil", "own", "ok"],
        ["key:other", "own", "refused"],
        ["key:trusted", "matmul", "ok"],
        ["key:boss", "matmul", "ok"],
    ] {
        assert!(contains_entry(&log, line), "{line:?} of {log:?}");
    }
    // Only the current rights of a key count: a job whose key was revoked continues to train, but cannot publish.
    let long = publish("evil", "own").with_parameter("steps", 3_000).with_parameter("work", 2);
    let job =
        ask(&server, &evil, "POST", "/api/v1/jobs", &long.spec(&server)).json()["name"].as_str().unwrap().to_owned();
    server.wait_for_step(&job, 1);
    server.saggar_ok(&["key", "revoke", "evil", "--home", home.path().to_str().unwrap()]);
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["step"]), (&json!("FAILED"), &json!(3_000)), "{ended}");
    assert!(ended["message"].as_str().unwrap().contains("the key evil was revoked"), "{ended}");
}

#[test]
fn a_job_cannot_read_a_secret_of_another_project() {
    let home = tempfile::tempdir().unwrap();
    let server = start_with_keys(home.path());
    let evil = create(home.path(), "evil", "jobs:write", Some("evil"));
    let set = |name: &str, projects: &[&str]| {
        let body = json!({ "value": "a value of 4711", "projects": projects });
        assert_eq!(server.request("PUT", &format!("/api/v1/secrets/{name}"), HttpPayload::Json(&body)).status, 200);
    };
    set("nobodys", &[]);
    set("theirs", &["faces"]);
    set("own", &["evil"]);
    let job = |secret: &str| {
        let job = SteadyJob::with_steps(3).with_field("project", "evil").with_field("secrets", json!([secret]));
        job.with_parameter("secret", secret).spec(&server)
    };
    let refusal = |secret: &str| {
        let answer = ask(&server, &evil, "POST", "/api/v1/jobs", &job(secret));
        (answer.status, answer.json()["error"].as_str().unwrap().replace(secret, "NAME"))
    };
    let none = refusal("absent");
    assert_eq!(none.0, 404, "{}", none.1);
    assert_eq!((refusal("theirs"), refusal("nobodys")), (none.clone(), none));
    let listed = server.saggar_ok(&["--key", &evil, "secret", "ls"]);
    assert!(listed.contains("own") && listed.contains("evil") && !listed.contains("theirs"), "{listed}");
    let answer = ask(&server, &evil, "POST", "/api/v1/jobs", &job("own"));
    let ended = server.wait_for_job(answer.json()["name"].as_str().unwrap());
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    // Once the project has lost the secret, later jobs do not get it, with any key.
    set("own", &["faces"]);
    let again =
        ask(&server, &evil, "POST", &format!("/api/v1/jobs/{}/restart", ended["name"].as_str().unwrap()), &json!({}));
    assert_eq!(again.status, 404, "{}", again.text);
    let log = audit_entries(home.path(), "secret.use");
    for line in [["key:evil", "own", "ok"], ["key:evil", "theirs", "not_found"]] {
        assert!(contains_entry(&log, line), "{line:?} of {log:?}");
    }
}

#[test]
fn a_dataset_of_another_project_can_be_neither_deleted_nor_read() {
    let home = tempfile::tempdir().unwrap();
    let server = start_with_keys(home.path());
    let keys = ["digits", "evil"].map(|name| create(home.path(), name, "jobs:write", Some(name)));
    let [digits, evil] = &keys;
    server.saggar_ok(&["--key", digits, "data", "push", "examples/digits", "--name", "mine"]);
    server.saggar_ok(&["data", "push", "examples/digits", "--name", "shared"]);
    for (method, path) in [("DELETE", "/api/v1/datasets/mine/1"), ("GET", "/api/v1/datasets/mine/1/export")] {
        assert_eq!(ask(&server, evil, method, path, &Value::Null).status, 404, "{method} {path}");
    }
    assert_eq!(ask(&server, evil, "DELETE", "/api/v1/datasets/shared/1", &Value::Null).status, 403);
    let conflict = server.saggar(&["--key", evil, "data", "push", "examples/digits", "--name", "mine"]);
    assert!(String::from_utf8_lossy(&conflict.stderr).contains("the name is taken"), "{conflict:?}");
    let listed = server.saggar_ok(&["--key", evil, "data", "ls"]);
    assert!(listed.contains("shared") && !listed.contains("mine"), "{listed}");
    assert_eq!(ask(&server, digits, "DELETE", "/api/v1/datasets/mine/1", &Value::Null).status, 200);
    server.saggar_ok(&["data", "projects", "shared", "--project", "evil"]);
    assert_eq!(ask(&server, evil, "DELETE", "/api/v1/datasets/shared/1", &Value::Null).status, 200);
    let log = audit_entries(home.path(), "dataset.remove");
    for line in [
        ["key:evil", "mine/1", "not_found"],
        ["key:evil", "shared/1", "foreign_project"],
        ["key:digits", "mine/1", "ok"],
    ] {
        assert!(contains_entry(&log, line), "{line:?} of {log:?}");
    }
}

#[test]
fn predictions_of_another_key_are_not_found_and_a_header_unloads_no_model() {
    let home = tempfile::tempdir().unwrap();
    let server = start_with_keys(home.path());
    serve_matmul(&server);
    let (shop, spy) = (create(home.path(), "shop", "predict", None), create(home.path(), "spy", "predict", None));
    let body = json!({ "model": "matmul", "input": pixels() });
    let response = ask(&server, &shop, "PUT", "/predictions/mine", &body);
    assert_eq!(response.status, 200, "{}", response.text);
    assert_eq!(ask(&server, &shop, "GET", "/predictions/mine", &Value::Null).json()["status"], "succeeded");
    let error =
        |answer: HttpResponse, id: &str| (answer.status, answer.json()["error"].as_str().unwrap().replace(id, "ID"));
    for (method, end) in [("GET", ""), ("POST", "/cancel")] {
        let of = |id: &str| error(ask(&server, &spy, method, &format!("/predictions/{id}{end}"), &Value::Null), id);
        assert_eq!(of("mine"), of("none"), "{method} {end}");
        assert_eq!(of("mine").0, 404);
    }
    // The same identifier with another input is a separate prediction of the spy.
    let other = json!({ "model": "matmul", "input": { "x": vec![0.25; 784] } });
    assert_eq!(ask(&server, &spy, "PUT", "/predictions/mine", &other).status, 200);
    // Unloading requires its scope, through any interface.
    assert_eq!(ask(&server, &spy, "POST", "/api/v1/models/matmul/unload", &Value::Null).status, 403);
    let answer = predict_with(&server, &spy, "X-Saggar-Keep-Alive: 0s");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(answer.contains("missing_scope") && answer.contains("X-Saggar-Keep-Alive"), "{answer}");
    assert!(predict_with(&server, &spy, "X-Saggar-Keep-Alive: forever").starts_with("HTTP/1.1 200"));
    assert_eq!(server.get("/api/v1/models/matmul")["state"], "READY");
    assert!(contains_entry(&audit_entries(home.path(), "model.keep_alive"), ["key:spy", "matmul", "missing_scope"]));
    assert!(contains_entry(&audit_entries(home.path(), "prediction.cancel"), ["key:spy", "mine", "not_found"]));
}
