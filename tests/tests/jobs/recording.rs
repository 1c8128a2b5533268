//! Predictions that are recorded and become datasets, with the real binary.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::time::Duration;

use saggar_store::DatasetStore;
use saggar_tests::{HttpPayload, ServerProcess, lenet, publish_echo};
use serde_json::{Value, json};

/// Writes a project file with this setting of a model, and returns its path.
fn project_file(home: &Path, model: &str, setting: &str) -> String {
    let path = home.join("saggar.toml");
    let text = format!("manifest = 1\n[project]\nname = \"p\"\n[model.{model}]\n{setting}\n");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Returns the versions of a dataset.
fn versions(server: &ServerProcess, name: &str) -> Vec<Value> {
    let all = server.get("/api/v1/datasets");
    all["datasets"].as_array().unwrap().iter().filter(|it| it["name"] == name).cloned().collect()
}

/// Returns an image of the digits' size.
fn image(seed: usize) -> Vec<Vec<usize>> {
    (0..8).map(|row| (0..8).map(|column| (seed * 7 + row * 31 + column * 17) % 256).collect()).collect()
}

#[test]
fn a_thousand_recorded_predictions_train_another_model() {
    let home = tempfile::tempdir().unwrap();
    let config = project_file(home.path(), "digits", "record = { share = \"100%\", every = \"1h\", rows = 1000 }");
    let server = ServerProcess::start_with_digits(home.path(), &["--config", &config]);
    let mut labels = Vec::new();
    for seed in 0..1000 {
        let body = json!({ "image": image(seed) });
        let answer = server.request("POST", "/models/digits/predict", HttpPayload::Json(&body));
        assert_eq!(answer.status, 200, "{}", answer.text);
        labels.push(answer.json()["label"].clone());
    }
    // The window is full, so it becomes a version at once.
    let version = server.wait_for("a version", |server| versions(server, "recorded-digits").pop());
    assert_eq!((&version["items"], &version["version"]), (&json!(1000), &json!(1)), "{version}");
    let fields: Vec<&str> =
        version["fields"].as_array().unwrap().iter().map(|field| field["name"].as_str().unwrap()).collect();
    assert_eq!(fields, ["image", "label", "probability", "probabilities"]);
    assert_eq!(version["fields"][1]["classes"].as_array().unwrap().len(), 10);
    assert_eq!(server.metric(r#"saggar_recorded_rows_total{model="digits"}"#), Some(1000.0));
    let store = DatasetStore::new(home.path().join("datasets"));
    let dataset = store.open(&store.resolve("recorded-digits").unwrap()).unwrap();
    for seed in [0, 1, 999] {
        let expected: Vec<u8> = image(seed).concat().iter().map(|value| u8::try_from(*value).unwrap()).collect();
        assert_eq!(dataset.read("image", &[seed as u64]).unwrap(), expected);
        let label = dataset.read("label", &[seed as u64]).unwrap();
        let class = &version["fields"][1]["classes"][i32::from_le_bytes(label.try_into().unwrap()) as usize];
        assert_eq!(class.as_str().unwrap(), labels[seed].to_string().trim_matches('"'), "{seed}");
    }
    let plugin = lenet();
    let run = ["run", plugin.to_str().unwrap(), "--data", "recorded-digits", "--project", "student", "--wait"];
    server.saggar_ok(&[&run[..], &["--", "epochs=1", "model=student"]].concat());
    let job = server.job("student-1");
    assert_eq!(job["state"], "SUCCEEDED", "{job}");
    server.wait_for_version("student", 1);
}

#[test]
fn a_share_is_recorded_and_the_rest_is_stored_when_the_server_stops() {
    let home = tempfile::tempdir().unwrap();
    publish_echo(home.path());
    let config = project_file(home.path(), "echo", "record = { share = \"10%\", every = \"200ms\" }");
    let server = ServerProcess::start_with(home.path(), &["--config", &config]);
    server.wait_for_version("echo", 1);
    let predict = |from: usize, count: usize| {
        for at in from..from + count {
            let body = json!({ "x": [at, at, at, at] });
            assert_eq!(server.request("POST", "/models/echo/predict", HttpPayload::Json(&body)).status, 200);
        }
    };
    predict(0, 300);
    // The interval makes versions; a later one has the rows of the ones before.
    server.wait_for("a version of 30 rows", |server| {
        versions(server, "recorded-echo").last().filter(|version| version["items"] == 30).map(|_| ())
    });
    for batch in 0..8 {
        predict(300 + batch * 10, 10);
        let rows = 31 + batch;
        server.wait_for("another version", |server| {
            versions(server, "recorded-echo").iter().any(|version| version["items"] == rows).then_some(())
        });
    }
    server
        .wait_for("old versions to be removed", |server| (versions(server, "recorded-echo").len() <= 5).then_some(()));
    predict(380, 10);
    server.signal("-TERM");
    assert!(server.wait_for_exit(Duration::from_secs(60)).unwrap().success());
    let store = DatasetStore::new(home.path().join("datasets"));
    let info = store.resolve("recorded-echo").unwrap();
    assert_eq!(info.items, 39);
    let dataset = store.open(&info).unwrap();
    // Every tenth prediction, and both fields, of which one has the other's name before it.
    let names: Vec<&str> = dataset.fields().iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["x", "y"]);
    let last = dataset.read("y", &[38]).unwrap();
    assert_eq!(last, [389f32; 4].iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
}

#[test]
fn without_the_setting_nothing_is_recorded() {
    let home = tempfile::tempdir().unwrap();
    publish_echo(home.path());
    let server = ServerProcess::start(home.path());
    server.wait_for_version("echo", 1);
    let body = json!({ "x": [1, 2, 3, 4] });
    assert_eq!(server.request("POST", "/models/echo/predict", HttpPayload::Json(&body)).status, 200);
    assert!(!server.metrics().contains("saggar_recorded_rows_total{"));
    server.signal("-TERM");
    assert!(server.wait_for_exit(Duration::from_secs(60)).unwrap().success());
    assert!(!home.path().join("datasets/recorded-echo").exists());
}

#[test]
fn a_full_quota_loses_rows_and_no_request() {
    let home = tempfile::tempdir().unwrap();
    publish_echo(home.path());
    let config = project_file(home.path(), "echo", "record = { share = \"100%\", every = \"100ms\" }");
    let server = ServerProcess::start_with(home.path(), &["--config", &config, "--storage-quota", "1KiB"]);
    server.wait_for_version("echo", 1);
    let body = json!({ "x": [1, 2, 3, 4] });
    let failed = r#"saggar_recorded_rows_dropped_total{model="echo",reason="failed"}"#;
    server.wait_for("rows that cannot be stored", |server| {
        assert_eq!(server.request("POST", "/models/echo/predict", HttpPayload::Json(&body)).status, 200);
        server.metric(failed).filter(|rows| *rows > 0.0)
    });
    assert!(versions(&server, "recorded-echo").is_empty());
    server.wait_for_log("recorded predictions cannot be stored");
}

#[test]
fn mistakes_in_the_setting_are_named_with_their_position() {
    let home = tempfile::tempdir().unwrap();
    for (setting, says) in [
        ("record = \"0%\"", "\"1%\""),
        ("record = \"101%\"", "\"1%\""),
        ("record = 0.01", "\"1%\""),
        ("record = { every = \"1m\" }", "share"),
        ("record = { share = \"1%\", row = 5 }", "rows"),
    ] {
        project_file(home.path(), "echo", setting);
        let checked = std::process::Command::new(saggar_tests::binary()).arg("check").current_dir(home.path()).output();
        let checked = checked.unwrap();
        let printed = [checked.stdout, checked.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        assert!(
            !checked.status.success() && printed.contains(says) && printed.contains("saggar.toml:5"),
            "{setting}: {printed}"
        );
    }
}
