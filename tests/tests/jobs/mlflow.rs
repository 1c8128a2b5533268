//! MLflow's interface, with the real binary and MLflow's own client.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::process::Command;

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, binary, client_output, create_key, lenet};
use serde_json::{Value, json};

const PACKAGES: &str = "tests/clients/observability.txt";

/// Runs the jobs `digits-1` and `digits-2`, and `digits-3`, which is stopped.
fn run_jobs(server: &ServerProcess) {
    server.push_digits();
    let plugin = lenet();
    let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--project", "digits", "-e", "rate"];
    for rate in ["lr=0.05", "lr=0.01"] {
        server.saggar_ok(&[&run[..], &["--wait", "--", "epochs=1", rate]].concat());
    }
    server.saggar_ok(&[&run[..], &["--", "epochs=1000"]].concat());
    server.saggar_ok(&["stop", "digits-3"]);
    server.wait_for_job("digits-3");
}

#[test]
fn the_client_of_mlflow_reads_jobs_and_logs_runs() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    run_jobs(&server);
    let printed = client_output(PACKAGES, "mlflow_runs.py", &[server.url()]);
    assert_eq!(printed.lines().last(), Some("ok"), "{printed}");
    // External runs survive a restart.
    let search = json!({ "experiment_ids": ["0"] });
    let before = server.post("/api/2.0/mlflow/runs/search", &search);
    assert_eq!(before["runs"].as_array().unwrap().len(), 1);
    server.kill_and_wait();
    let server = ServerProcess::start(home.path());
    assert_eq!(server.post("/api/2.0/mlflow/runs/search", &search), before);
    let used = server.saggar_ok(&["quota"]);
    assert!(used.contains("records"), "{used}");
}

#[test]
fn the_client_of_mlflow_reads_what_a_training_logged() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(8).with_parameter("items", true).submit(&server);
    assert_eq!(server.wait_for_job(&job)["state"], "SUCCEEDED");
    let printed = client_output(PACKAGES, "mlflow_logged.py", &[server.url(), &job]);
    assert_eq!(printed.lines().last(), Some("ok"), "{printed}");
}

#[test]
fn a_key_reads_and_writes_what_its_scopes_and_projects_allow() {
    let home = tempfile::tempdir().unwrap();
    let admin = create_key(home.path(), &["boss", "--scope", "admin"]);
    let reads = create_key(home.path(), &["reads", "--scope", "jobs:read"]);
    let scopes = ["--scope", "jobs:read", "--scope", "jobs:write"];
    let limited = create_key(home.path(), &[&["limited"][..], &scopes, &["--project", "faces"]].concat());
    let server = ServerProcess::start_with(home.path(), &["--require-keys"]).with_key(&admin);
    let create = |key: Option<&str>, name: &str| {
        let body = json!({ "name": name });
        server.request_as(key, "POST", "/api/2.0/mlflow/experiments/create", HttpPayload::Json(&body))
    };
    assert_eq!(create(Some(&admin), "secret").status, 200);
    let anonymous = create(None, "x");
    assert_eq!(
        (anonymous.status, &anonymous.json()["error_code"]),
        (401, &json!("UNAUTHENTICATED")),
        "{}",
        anonymous.text
    );
    let refused = create(Some(&reads), "x");
    assert_eq!((refused.status, &refused.json()["error_code"]), (403, &json!("PERMISSION_DENIED")), "{}", refused.text);
    assert_eq!(create(Some(&limited), "digits").status, 403);
    assert_eq!(create(Some(&limited), "faces").status, 200);
    let list = |key: &str| {
        let answer = server.request_as(Some(key), "GET", "/api/2.0/mlflow/experiments/search", HttpPayload::Nothing);
        let all = answer.json()["experiments"].as_array().unwrap().clone();
        all.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(list(&limited).into_iter().collect::<Vec<_>>(), ["faces"]);
    assert!(list(&reads).contains("secret"));
    // A run of another project is like one that is missing.
    let secret = server.get("/api/2.0/mlflow/experiments/get-by-name?experiment_name=secret");
    let body = json!({ "experiment_id": secret["experiment"]["experiment_id"] });
    let run = server.post("/api/2.0/mlflow/runs/create", &body)["run"]["info"]["run_id"].as_str().unwrap().to_owned();
    let get = |key: &str| {
        let path = format!("/api/2.0/mlflow/runs/get?run_id={run}");
        server.request_as(Some(key), "GET", &path, HttpPayload::Nothing).status
    };
    assert_eq!((get(&reads), get(&limited)), (200, 404));
    let log = json!({ "run_id": run, "key": "a", "value": "b" });
    let logged = server.request_as(Some(&limited), "POST", "/api/2.0/mlflow/runs/set-tag", HttpPayload::Json(&log));
    assert_eq!(logged.status, 404, "{}", logged.text);
    // The client sends the key as MLFLOW_TRACKING_TOKEN.
    let read = client_output(PACKAGES, "mlflow_token.py", &[server.url(), &reads]);
    assert_eq!(read.trim(), "Default secret");
}

#[test]
fn malformed_requests_are_refused_and_change_nothing() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let run = server.post("/api/2.0/mlflow/runs/create", &json!({ "experiment_id": "0" }));
    let run = run["run"]["info"]["run_id"].as_str().unwrap().to_owned();
    let long = "k".repeat(251);
    for (path, body) in [
        ("runs/log-metric", json!({ "run_id": run, "key": "", "value": 1, "timestamp": 0 })),
        ("runs/log-metric", json!({ "run_id": run, "key": long, "value": 1, "timestamp": 0 })),
        ("runs/log-metric", json!({ "run_id": run, "key": "a", "value": "many", "timestamp": 0 })),
        ("runs/log-metric", json!({ "run_id": run, "key": "a", "value": 1, "timestamp": "x" })),
        ("runs/log-metric", json!({ "key": "a", "value": 1 })),
        (
            "runs/log-batch",
            json!({ "run_id": run, "metrics": [{ "key": "a", "value": 1 }], "params": [{ "key": "" }] }),
        ),
        ("runs/log-batch", json!({ "run_id": run, "metrics": "all" })),
        ("runs/update", json!({ "run_id": run, "status": "DONE" })),
        ("runs/search", json!({ "experiment_ids": ["0"], "max_results": 50_001 })),
        ("runs/search", json!({ "experiment_ids": ["0"], "page_token": "-1" })),
        ("runs/search", json!({ "experiment_ids": ["0"], "filter": "status =" })),
        ("runs/search", json!({ "experiment_ids": ["0"], "order_by": ["a b c"] })),
        ("experiments/create", json!({ "name": "" })),
        ("experiments/create", json!({ "name": long })),
    ] {
        let answer = server.request("POST", &format!("/api/2.0/mlflow/{path}"), HttpPayload::Json(&body));
        let error = answer.json();
        assert_eq!((answer.status, &error["error_code"]), (400, &json!("INVALID_PARAMETER_VALUE")), "{path} {body}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
    }
    for path in [
        "mlflow/runs/get?run_id=none",
        "mlflow/metrics/get-history?run_id=none&metric_key=a",
        "mlflow/artifacts/list?run_id=none",
        "mlflow-artifacts/artifacts?path=jobs/none",
        "mlflow-artifacts/artifacts?path=..",
        "mlflow-artifacts/artifacts/jobs/none/../../x",
        &format!("mlflow-artifacts/artifacts/jobs/{run}/x"),
        &format!("mlflow-artifacts/artifacts/runs/{run}/x"),
    ] {
        let answer = server.request("GET", &format!("/api/2.0/{path}"), HttpPayload::Nothing);
        assert_eq!((answer.status, &answer.json()["error_code"]), (404, &json!("RESOURCE_DOES_NOT_EXIST")), "{path}");
    }
    let read = server.get(&format!("/api/2.0/mlflow/runs/get?run_id={run}"));
    assert_eq!((&read["run"]["data"]["metrics"], &read["run"]["data"]["params"]), (&json!([]), &json!([])));
}

#[test]
fn what_the_pages_request_agrees_with_the_interface_of_clients() {
    let home = tempfile::tempdir().unwrap();
    let pages = home.path().join("pages");
    std::fs::create_dir_all(pages.join("static")).unwrap();
    std::fs::write(pages.join("index.html"), "<title>MLflow</title>").unwrap();
    std::fs::write(pages.join("static/main.js"), "1").unwrap();
    std::fs::write(home.path().join("secret"), "secret").unwrap();
    let server = ServerProcess::start_with(home.path(), &["--mlflow-ui", pages.to_str().unwrap()]);
    run_jobs(&server);
    let get = |path: &str| server.request("GET", path, HttpPayload::Nothing);
    let page = get("/mlflow/");
    assert_eq!((page.status, page.text.as_str()), (200, "<title>MLflow</title>"));
    assert_eq!(get("/mlflow/static-files/static/main.js").text, "1");
    for outside in ["..%2Fsecret", "static/..%2F..%2Fsecret", "%2Fetc%2Fpasswd", "static", "absent.js"] {
        let refused = get(&format!("/mlflow/static-files/{outside}"));
        assert_eq!(refused.status, 404, "{outside}: {}", refused.text);
    }
    let query = |name: &str, variables: Value| {
        let body = json!({ "operationName": name, "variables": variables, "query": "query ..." });
        server.request("POST", "/mlflow/graphql", HttpPayload::Json(&body))
    };
    let run = server.get("/api/2.0/mlflow/runs/get?run_id=digits-1")["run"].clone();
    let answer = query("GetRun", json!({ "data": { "runId": "digits-1" } })).json();
    let queried = &answer["data"]["mlflowGetRun"]["run"];
    assert_eq!(queried["data"], run["data"]);
    assert_eq!(queried["info"]["startTime"], run["info"]["start_time"].to_string());
    assert_eq!(queried["experiment"]["name"], "digits");
    let id = run["info"]["experiment_id"].as_str().unwrap();
    let answer = query("MlflowGetExperimentQuery", json!({ "input": { "experimentId": id } })).json();
    assert_eq!(answer["data"]["mlflowGetExperiment"]["experiment"]["name"], "digits");
    let missing = query("GetRun", json!({ "data": { "runId": "absent-1" } }));
    assert_eq!(missing.status, 200, "{}", missing.text);
    let error = &missing.json()["data"]["mlflowGetRun"]["apiError"];
    assert_eq!(error["code"], "RESOURCE_DOES_NOT_EXIST", "{error}");
    let unknown = query("DropTables", json!({}));
    assert!(unknown.status == 400 && unknown.text.contains("GetRun"), "{}", unknown.text);
    // A chart of two runs.
    let charts = "/mlflow/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval";
    let both = server.get(&format!("{charts}?run_ids=digits-1&run_ids=digits-2&metric_key=loss&max_results=3"));
    let both = both["metrics"].as_array().unwrap();
    for name in ["digits-1", "digits-2"] {
        let history = server.get(&format!("/api/2.0/mlflow/metrics/get-history?run_id={name}&metric_key=loss"));
        let history = history["metrics"].as_array().unwrap();
        let sampled: Vec<&Value> = both.iter().filter(|point| point["run_id"] == name).collect();
        assert_eq!(sampled.len(), history.len().min(3), "{both:?}");
        assert_eq!(sampled.last().unwrap()["value"], history.last().unwrap()["value"]);
        assert_eq!(sampled[0]["step"], history[0]["step"]);
    }
    assert_eq!(get(&format!("{charts}?run_ids=absent-1&metric_key=loss")).status, 404);
    assert_eq!(get(&format!("{charts}?{}metric_key=loss", "run_ids=digits-1&".repeat(101))).status, 400);
    let artefact = get("/mlflow/get-artifact?run_uuid=digits-1&path=confusion.csv");
    assert_eq!(artefact.text, get("/api/v1/jobs/digits-1/output/confusion.csv").text);
    assert_eq!(get("/mlflow/get-artifact?run_uuid=digits-1&path=absent").status, 404);
}

#[test]
fn a_directory_without_the_pages_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--home"]).arg(home.path().join("state"));
    let refused = command.arg("--mlflow-ui").arg(home.path()).output().unwrap();
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(7) && errors.contains("there is no index.html in it"), "{errors}");
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let missing = server.request("GET", "/mlflow/", HttpPayload::Nothing);
    assert!(missing.status == 404 && missing.text.contains("--mlflow-ui"), "{}", missing.text);
}
