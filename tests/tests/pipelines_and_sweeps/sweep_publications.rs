//! The result of a sweep as a version of a model.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, create_sweep, guest, lenet, wait_for_sweep};
use serde_json::{Value, json};

/// A server on which `digits-gated` accepts no version.
fn start(home: &std::path::Path) -> ServerProcess {
    let manifest = home.join("gate.toml");
    let text = "manifest = 1\n[project]\nname = \"p\"\n[model.digits-gated]\npromote = \"validation/accuracy > 2\"\n";
    std::fs::write(&manifest, text).unwrap();
    ServerProcess::start_with(home, &["--config", manifest.to_str().unwrap()])
}

/// A sweep of two trainings, of which the first is better, and both publish `digits-search`.
fn lenet_sweep(server: &ServerProcess) -> Value {
    json!({
        "job": {
            "project": "digits", "plugin": server.upload(&lenet()), "device": "cpu",
            "data": [{"dataset": "digits", "mount": "/data"}],
            "parameters": {"epochs": 1, "channels": 4, "model": "digits-search"},
        },
        "space": {"lr": "0.05,0.00001"}, "metric": "min:epoch/loss", "max_parallel": 1,
    })
}

fn publish(server: &ServerProcess, sweep: &str, body: &Value) -> (u16, Value) {
    let answer = server.request("POST", &format!("/api/v1/sweeps/{sweep}/publish"), HttpPayload::Json(body));
    (answer.status, answer.json())
}

fn message(error: &Value) -> &str {
    error["error"].as_str().unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn the_best_trial_becomes_the_default_version_of_a_model_through_its_gate() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    server.push_digits();
    let name = create_sweep(&server, &lenet_sweep(&server));
    let (status, refused) = publish(&server, &name, &json!({}));
    assert_eq!(status, 409, "{refused}");
    assert!(message(&refused).contains("is RUNNING"), "{refused}");
    let sweep = wait_for_sweep(&server, &name);
    assert_eq!(sweep["best"], 1, "{sweep}");
    let job = sweep["trials"][0]["job"].as_str().unwrap();

    // As a version of a new model.
    let printed = server.saggar_ok(&["sweep", "publish", &name, "--model", "digits-best"]);
    assert_eq!(printed.trim(), "digits-best@1");
    let model = server.get("/api/v1/models/digits-best");
    assert_eq!((&model["serving"], &model["versions"][0]["source_job"]), (&json!(1), &json!(job)), "{model}");
    let own = server.job(job)["published"][0]["version"].clone();
    let versions = server.get("/api/v1/models/digits-search");
    let best = versions["versions"].as_array().unwrap().iter().find(|it| it["version"] == own).unwrap();
    assert_eq!(model["versions"][0]["weights"], best["weights"]);
    assert_eq!(model["versions"][0]["metrics"], best["metrics"]);

    // Again: the same version. Without a model: the trial's own one, whose default was the last trial's version.
    let (status, again) = publish(&server, &name, &json!({"model": "digits-best"}));
    assert_eq!((status, &again["version"], &again["is_new"]), (201, &json!(1), &json!(false)), "{again}");
    assert_eq!((&again["trial"], &again["job"]), (&json!(1), &json!(job)), "{again}");
    let (status, alone) = publish(&server, &name, &json!({}));
    assert_eq!((status, &alone["model"], &alone["version"]), (201, &json!("digits-search"), &own), "{alone}");
    assert_eq!(server.get("/api/v1/models/digits-search")["serving"], own);

    // The gate refuses with its reason; the version is stored and not served.
    let (status, refused) = publish(&server, &name, &json!({"model": "digits-gated"}));
    assert_eq!(status, 409, "{refused}");
    let text = refused.to_string();
    for part in ["digits-gated@1", "validation/accuracy", "saggar models promote digits-gated 1"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let gated = server.get("/api/v1/models/digits-gated");
    assert_eq!((&gated["serving"], gated["versions"].as_array().unwrap().len()), (&Value::Null, 1), "{gated}");
    let output = server.saggar(&["sweep", "publish", &name, "--model", "digits-gated"]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("not promoted"));

    for (model, status) in [("../x", 400), ("", 400)] {
        let (found, refused) = publish(&server, &name, &json!({ "model": model }));
        assert_eq!(found, status, "{model:?}: {refused}");
    }
    let (status, missing) = publish(&server, "digits-sweep-9", &json!({}));
    assert_eq!((status, message(&missing).contains("saggar sweep ls")), (404, true), "{missing}");
}

/// The trials publish nothing, so the best checkpoint of the best trial becomes the version.
#[test]
fn the_best_checkpoint_of_trials_that_publish_nothing_becomes_a_version() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    server.push_digits();
    let job = |parameters: Value| {
        json!({
            "project": "digits", "plugin": server.upload(&guest("formulas")), "device": "cpu",
            "data": [{"dataset": "digits", "mount": "/data"}], "parameters": parameters,
            "checkpoint_every": {"steps": 20}, "checkpoint_keep_last": 50,
        })
    };
    // Only a training states the configuration of a predictor, so a first version is trained.
    let first = server.request("POST", "/api/v1/jobs", HttpPayload::Json(&job(json!({"epochs": 1}))));
    let first = first.json()["name"].as_str().unwrap().to_owned();
    assert_eq!(server.wait_for_job(&first)["state"], "SUCCEEDED");
    let spec = json!({
        "job": job(json!({"epochs": 2, "publishes": false})),
        "space": {"optimizer": "adam,sgd"}, "metric": "validation/accuracy", "max_parallel": 1,
    });
    let name = create_sweep(&server, &spec);
    let sweep = wait_for_sweep(&server, &name);
    let best = sweep["best"].as_u64().unwrap();
    let trial = &sweep["trials"].as_array().unwrap()[best as usize - 1];
    let job = trial["job"].as_str().unwrap();
    assert_eq!(server.job(job)["published"], json!([]), "{}", server.job(job));

    let (status, made) = publish(&server, &name, &json!({"model": "network"}));
    assert_eq!((status, &made["version"], &made["is_new"]), (201, &json!(2), &json!(true)), "{made}");
    assert_eq!((&made["trial"], &made["job"]), (&json!(best), &json!(job)), "{made}");
    // The step is that of the checkpoint with the best value of the metric, the newest one among equals.
    let checkpoints = server.get(&format!("/api/v1/jobs/{job}/checkpoints"));
    let value = |checkpoint: &Value| checkpoint["metrics"]["validation/accuracy"].as_f64();
    let all = checkpoints["checkpoints"].as_array().unwrap();
    let highest = all.iter().filter_map(value).fold(0.0, f64::max);
    let steps: Vec<u64> =
        all.iter().filter(|it| value(it) == Some(highest)).map(|it| it["step"].as_u64().unwrap()).collect();
    let step: u64 = made["source"].as_str().unwrap().rsplit_once('@').unwrap().1.parse().unwrap();
    assert!(steps.contains(&step), "{step} of {steps:?}: {checkpoints}");

    let model = server.get("/api/v1/models/network");
    assert_eq!(model["serving"], 2, "{model}");
    let version = |number: u64| {
        let versions = model["versions"].as_array().unwrap();
        versions.iter().find(|it| it["version"] == number).unwrap().clone()
    };
    assert_eq!(version(2)["source_job"], job);
    assert_ne!(version(2)["weights"], version(1)["weights"]);
    let answer = server.saggar_ok(&["predict", "network", "-i", "image=@examples/digits/held-out/7.png", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["label"], 7, "{answer}");
    let (status, again) = publish(&server, &name, &json!({"model": "network"}));
    assert_eq!((status, &again["version"], &again["is_new"]), (201, &json!(2), &json!(false)), "{again}");
}

#[test]
fn a_sweep_without_a_model_says_what_is_missing() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    let steady = |fields: Value| {
        let mut job = SteadyJob::with_steps(3).spec(&server);
        job["parameters"]
            .as_object_mut()
            .unwrap()
            .extend(fields["parameters"].as_object().cloned().unwrap_or_default());
        if let Some(every) = fields.get("checkpoint_every") {
            job["checkpoint_every"] = every.clone();
        }
        let spec = json!({"job": job, "space": {"work": "1,2"}, "metric": "accuracy"});
        let name = create_sweep(&server, &spec);
        wait_for_sweep(&server, &name);
        name
    };
    let refused = |name: &str, body: Value| {
        let (status, error) = publish(&server, name, &body);
        (status, message(&error).to_owned())
    };
    let failed = steady(json!({"parameters": {"fail_at": 1}}));
    let (status, text) = refused(&failed, json!({}));
    assert!(status == 409 && text.contains("no completed trial"), "{status} {text}");

    let unsaved = steady(json!({}));
    let (status, text) = refused(&unsaved, json!({"model": "m"}));
    assert!(status == 409 && text.contains("nor kept a checkpoint"), "{status} {text}");

    let saved = steady(json!({"checkpoint_every": {"steps": 1}}));
    let (status, text) = refused(&saved, json!({}));
    assert!(status == 409 && text.contains("--model NAME"), "{status} {text}");
    // Only a training knows the configuration of a predictor, so a checkpoint cannot be a model's first version.
    let (status, text) = refused(&saved, json!({"model": "unknown"}));
    assert!(status == 404 && text.contains("unknown"), "{status} {text}");

    let job = server.get(&format!("/api/v1/sweeps/{saved}"))["trials"][0]["job"].as_str().unwrap().to_owned();
    server.saggar_ok(&["rm", &job, "--yes"]);
    let (status, text) = refused(&saved, json!({"model": "m"}));
    assert!(status == 409 && text.contains("was removed"), "{status} {text}");
}

#[test]
fn a_key_publishes_only_to_models_of_its_projects() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--require-keys"]);
    let state = home.path().to_str().unwrap();
    let key = |arguments: &[&str]| {
        let made = server.saggar_ok(&[&["key", "create"], arguments, &["--home", state, "--quiet"]].concat());
        made.trim().to_owned()
    };
    let boss = key(&["boss", "--scope", "admin"]);
    let scopes = ["--scope", "jobs:write", "--scope", "models:write", "--project"];
    let own = key(&[&["own"], scopes.as_slice(), &["digits"]].concat());
    let other = key(&[&["other"], scopes.as_slice(), &["faces"]].concat());
    let server = server.with_key(&boss);
    server.push_digits();
    let sweep = create_sweep(&server, &lenet_sweep(&server));
    wait_for_sweep(&server, &sweep);
    let (status, made) = publish(&server, &sweep, &json!({"model": "faces-best"}));
    assert_eq!(status, 201, "{made}");
    let projects = json!({"projects": ["faces"]});
    let assigned = server.request("PUT", "/api/v1/models/faces-best/projects", HttpPayload::Json(&projects));
    assert_eq!(assigned.status, 200, "{}", assigned.text);
    let before = server.get("/api/v1/models/faces-best");
    let as_key = |key: &str, model: &str| {
        let path = format!("/api/v1/sweeps/{sweep}/publish");
        let answer = server.request_as(Some(key), "POST", &path, HttpPayload::Json(&json!({ "model": model })));
        (answer.status, answer.json())
    };
    let (status, refused) = as_key(&own, "faces-best");
    assert_eq!((status, &refused["code"]), (403, &json!("foreign_project")), "{refused}");
    assert_eq!(server.get("/api/v1/models/faces-best")["versions"], before["versions"]);
    let (status, hidden) = as_key(&other, "faces-best");
    assert_eq!((status, &hidden["code"]), (404, &json!("not_found")), "{hidden}");
    let (status, made) = as_key(&own, "digits-best");
    assert_eq!((status, &made["version"]), (201, &json!(1)), "{made}");
}
