//! The output of `saggar init`: every template builds and runs unchanged.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::{Path, PathBuf};
use std::process::Command;

use saggar_tests::{HttpPayload, ServerProcess, binary, root};
use serde_json::json;

/// Every template, and the parameters of a short run on digits.
const TEMPLATES: [(&str, &[&str]); 6] = [
    ("classifier", &["epochs=3"]),
    ("trainer", &["steps=50"]),
    ("lenet-mnist", &["epochs=1"]),
    ("input-opt", &["target=3", "steps=20"]),
    ("echo", &["size=3"]),
    ("step", &["table=digits", "score=label"]),
];

/// Templates in other languages, whose tests are in `python_plugins.rs` and `javascript_plugins.rs`.
const OTHER_LANGUAGES: [&str; 2] = ["python", "javascript"];

fn init(place: &Path, arguments: &[&str]) -> std::process::Output {
    Command::new(binary()).arg("init").args(arguments).current_dir(place).output().unwrap()
}

/// Returns an empty folder whose plugins are built beside the reference plugins, because they share most dependencies.
fn template_directory() -> PathBuf {
    let target = root().join("plugins/target");
    let place = target.join("templates");
    if place.exists() {
        std::fs::remove_dir_all(&place).unwrap();
    }
    std::fs::create_dir_all(place.join(".cargo")).unwrap();
    std::fs::write(place.join(".cargo/config.toml"), format!("[build]\ntarget-dir = {target:?}\n")).unwrap();
    place
}

#[test]
fn every_template_builds_and_runs() {
    let home = tempfile::tempdir().unwrap();
    let place = template_directory();
    let server = ServerProcess::start(home.path());
    server.push_digits();
    for (template, parameters) in TEMPLATES {
        let name = format!("my-{template}");
        let written = init(&place, &[&name, "--template", template]);
        assert!(written.status.success(), "{template}: {}", String::from_utf8_lossy(&written.stderr));
        let plugin = place.join(&name);
        let readme = std::fs::read_to_string(plugin.join("README.md")).unwrap();
        assert!(readme.contains(&format!("saggar run {name}")) && !readme.contains("NAME"), "{readme}");
        // The dataset of a step is one of its inputs.
        let data: &[&str] = if template == "step" { &[] } else { &["--data", "digits"] };
        let run = ["run", plugin.to_str().unwrap()];
        let ran = server.saggar_ok(&[&run[..], data, &["--wait", "--"], parameters].concat());
        assert!(ran.contains(&format!("{name}-1 SUCCEEDED")), "{template}: {ran}");
        if template == "lenet-mnist" {
            server.wait_for_version("digits", 1);
        }
    }
    check_results(&server);
    check_printed_address_serves(&server, &place.join("my-classifier"));
}

fn check_printed_address_serves(server: &ServerProcess, plugin: &Path) {
    let run = ["run", plugin.to_str().unwrap(), "--mode", "serve", "--data", "digits", "--", "epochs=1"];
    let printed = server.saggar_ok(&run);
    let url = printed.trim();
    assert_eq!(url, format!("{}/models/my-classifier/predict", server.url()));
    let model = server.request("GET", "/models/my-classifier/predict", HttpPayload::Nothing);
    assert_eq!((model.status, model.json()["version"].as_u64()), (200, Some(2)), "{}", model.text);
    let answer = server.request("POST", "/models/my-classifier/predict", HttpPayload::Json(&model.json()["example"]));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(server.request("GET", "/predict", HttpPayload::Nothing).json()["model"], "my-classifier");
    let refused = server.saggar(&["run", plugin.to_str().unwrap(), "--mode", "jupyter"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("[possible values: job, serve, notebook]"));
}

/// Checks the results of each template.
fn check_results(server: &ServerProcess) {
    let files = |job: &str| server.saggar_ok(&["output", "ls", job, "-q"]).trim().to_owned();
    assert_eq!(files("my-trainer-1"), "weights.csv");
    assert_eq!(files("my-input-opt-1"), "target-003.png");
    let outputs = &server.get("/api/v1/jobs/my-step-1")["step_outputs"];
    // The labels are the digits, and all but 0 are positive.
    assert_eq!(
        (&outputs["threshold"]["value"], &outputs["accuracy"]["value"]),
        (&1.0.into(), &1.0.into()),
        "{outputs}"
    );
    assert_eq!(files("my-step-1"), "report");
    let job = server.get("/api/v1/jobs/my-classifier-1");
    let accuracy = job["metrics"]["validation/accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.8, "{accuracy}");
    server.wait_for_version("my-classifier", 1);
    let predict = ["predict", "my-classifier", "-i", "image=@examples/digits/held-out/7.png", "--json"];
    assert!(server.saggar_ok(&predict).contains("\"label\": "));
    server.wait_for_version("my-echo", 1);
    let echo = server.saggar_ok(&["predict", "my-echo", "-i", "x=[1,2,3]", "--json"]);
    let echo: serde_json::Value = serde_json::from_str(&echo).unwrap();
    assert_eq!(echo["y"], serde_json::json!([1.0, 2.0, 3.0]));
}

#[test]
fn an_unknown_template_lists_the_valid_ones() {
    let place = tempfile::tempdir().unwrap();
    let refused = init(place.path(), &["mine", "--template", "absent"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(TEMPLATES.iter().all(|(template, _)| said.contains(template)), "{said}");
    assert!(OTHER_LANGUAGES.iter().all(|template| said.contains(template)) && said.contains("pipeline"), "{said}");
    assert!(!place.path().join("mine").exists());
}

#[test]
fn the_template_of_a_pipeline_runs_as_it_is() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let place = home.path().join("projects");
    std::fs::create_dir(&place).unwrap();
    let written = init(&place, &["mine", "--template", "pipeline"]);
    let notes = String::from_utf8_lossy(&written.stderr).into_owned();
    assert!(written.status.success() && notes.contains("cd mine && saggar pipeline check"), "{notes}");
    let run = |arguments: &[&str]| {
        let output = server.command(arguments).current_dir(place.join("mine")).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["pipeline", "check"]);
    run(&["pipeline", "run", "nightly", "-p", "base_epochs=1", "-p", "epochs=2", "--follow"]);
    assert_eq!(server.get("/api/v1/pipeline-runs/nightly-1")["state"], "SUCCEEDED");
    assert_eq!(server.get("/api/v1/models/mine")["serving"], 1);
    // The base is not trained again.
    run(&["pipeline", "run", "nightly", "-p", "base_epochs=1", "-p", "epochs=2", "--follow"]);
    let steps = &server.get("/api/v1/pipeline-runs/nightly-2")["steps"];
    // The commands of its README.
    let serving = server.get("/api/v1/models/mine")["serving"].clone();
    run(&["sweep", "--sweep", "rate", "--follow"]);
    let sweep = server.get("/api/v1/sweeps/mine-sweep-1");
    assert_eq!((&sweep["state"], &sweep["trial_states"]), (&json!("SUCCEEDED"), &json!({ "COMPLETED": 4 })), "{sweep}");
    assert_eq!(server.get("/api/v1/models/mine")["serving"], serving, "the trials publish another model");
    run(&["sweep", "results", "mine-sweep-1", "--save-task", "best"]);
    assert!(std::fs::read_to_string(place.join("mine/saggar.toml")).unwrap().contains("[task.best]"));
    run(&["check"]);
    assert_eq!(steps[0]["attempts"][0]["cached_from"], "nightly-1", "{steps}");
}
