//! Steps: plugins with typed inputs and outputs, run as jobs.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_store::Digest;
use saggar_tests::{HttpPayload, ServerProcess, guest};
use serde_json::{Value, json};

/// Runs the guest `stepper` and returns the exit code and everything that was printed.
fn run_stepper(server: &ServerProcess, parameters: &[&str]) -> (Option<i32>, String) {
    let plugin = guest("stepper");
    let run = ["run", plugin.to_str().unwrap(), "--device", "cpu", "--wait", "--"];
    let output = server.saggar(&[&run[..], parameters].concat());
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(printed).unwrap())
}

#[test]
fn a_step_gets_typed_inputs_and_its_outputs_are_recorded() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let (code, printed) = run_stepper(&server, &["count=3", "share=0.5"]);
    assert_eq!(code, Some(0), "{printed}");
    let job = server.job("stepper-1");
    assert_eq!(job["spec"]["parameters"], json!({ "mode": "well", "count": 3, "share": 0.5, "flag": false }));
    let outputs = json!({
        "count": { "type": "integer", "value": 4 },
        "share": { "type": "number", "value": 0.25 },
        "flag": { "type": "boolean", "value": true },
        "note": { "type": "text", "value": "all is well" },
        "report": {
            "type": "file",
            "value": "job:stepper-1/output/report",
            "bytes": 9,
            "sha256": Digest::of(b"a report\n").hex(),
        },
        "rows": { "type": "dataset", "value": "job:stepper-1/output/table" },
    });
    assert_eq!(job["step_outputs"], outputs);

    // The commands show the same.
    let status: Value = serde_json::from_str(&server.saggar_ok(&["status", "stepper-1", "--json"])).unwrap();
    assert_eq!(status["step_outputs"], outputs);
    let field = server.saggar_ok(&["status", "stepper-1", "--field", "step_outputs.share.value"]);
    assert_eq!(field.trim(), "0.25");
    assert!(server.saggar_ok(&["status", "stepper-1"]).contains("output share            0.25"));
    let values = server.saggar_ok(&["output", "ls", "stepper-1", "--kind", "value"]);
    assert!(values.contains("integer") && values.contains("job:stepper-1/output/report (9 B)"), "{values}");
    let values = server.saggar_ok(&["output", "ls", "stepper-1", "--kind", "value", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&values).unwrap(), outputs);
    let place = tempfile::tempdir().unwrap();
    server.saggar_ok(&["output", "get", "stepper-1", "report", "-o", place.path().to_str().unwrap()]);
    assert_eq!(std::fs::read(place.path().join("report")).unwrap(), b"a report\n");
    assert!(server.saggar_ok(&["logs", "stepper-1"]).contains("output share: number = 0.25"));

    // Another run of the same job binds the same inputs.
    server.saggar_ok(&["restart", "stepper-1", "--wait", "--", "count=9"]);
    assert_eq!(server.job("stepper-2")["step_outputs"]["count"]["value"], 10);
}

#[test]
fn plugins_show_lists_inputs_and_outputs_with_types() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let plugin = guest("stepper");
    let printed = server.saggar_ok(&["plugins", "show", plugin.to_str().unwrap()]);
    assert!(printed.contains("step      yes") && printed.contains("trains    no"), "{printed}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = printed.lines().map(words).collect();
    let line = |name: &str, kind: &str| lines.iter().any(|line| line.len() > 2 && line[0] == name && line[1] == kind);
    for (name, kind) in [("mode", "text"), ("count", "integer"), ("share", "number"), ("flag", "boolean")] {
        assert!(line(name, kind), "{name}: {printed}");
    }
    assert!(line("report", "file") && line("rows", "dataset"), "{printed}");
    let digest = server.upload(&plugin);
    let listed = server.get("/api/v1/plugins");
    let listed = listed["plugins"].as_array().unwrap().iter().find(|it| it["digest"] == digest.as_str()).unwrap();
    assert_eq!((&listed["is_step"], &listed["trains"]), (&json!(true), &json!(false)));
    assert_eq!(listed["declares"]["inputs"]["count"]["type"], "integer");
    let help = server.saggar_ok(&["run", plugin.to_str().unwrap(), "--help"]);
    assert!(help.contains("Inputs of stepper"), "{help}");
}

#[test]
fn inputs_of_the_wrong_type_are_refused_before_anything_runs() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let digest = server.upload(&guest("stepper"));
    let refusal = |spec: Value, status: u16, says: &str| {
        let mut whole = json!({ "project": "p", "plugin": digest });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let answer = server.request("POST", "/api/v1/jobs", HttpPayload::Json(&whole));
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(answer.json()["error"].as_str().unwrap().contains(says), "{}", answer.text);
    };
    let parameters = |parameters: Value| json!({ "parameters": parameters });
    refusal(parameters(json!({ "count": "three" })), 400, "parameters.count: expected an integer from 0 to 1000000");
    refusal(parameters(json!({ "count": -1 })), 400, "parameters.count");
    refusal(parameters(json!({ "flag": 1 })), 400, "parameters.flag: expected true or false, got 1");
    refusal(parameters(json!({ "cuont": 1 })), 400, "`cuont` is not an input of this step; it has: count, flag");
    refusal(json!({ "data": [{ "dataset": "digits", "mount": "/data" }] }), 400, "`/data` is not an input");
    refusal(json!({ "replicas": 2 }), 400, "step: a step runs in one process");
    refusal(json!({ "measure": true }), 400, "step: only a training can be measured");
    refusal(json!({ "init_from": "model:digits" }), 400, "step: nothing is trained");
    assert_eq!(server.get("/api/v1/jobs")["jobs"], json!([]));
}

#[test]
fn outputs_that_do_not_match_their_declarations_fail_the_step_by_name() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let cases = [
        ("missing", "output `share`: the plugin declares a number of at most 1, and the step returned no value"),
        ("undeclared", "output `median`: the plugin declares count, flag, note, report, rows, share"),
        (
            "wrong-type",
            "output `share`: the plugin declares a number of at most 1, and the step returned a value of type text",
        ),
        ("twice", "output `share`: the plugin declares a number of at most 1, and the step returned two values"),
        ("out-of-range", "and the step returned 2"),
        ("not-a-number", "and the step returned NaN"),
        ("long-text", "output `note`: the plugin declares a text, and the step returned 1048576 bytes; at most 2048"),
        ("no-such-rows", "output `rows`"),
        ("many-outputs", "output `o0`"),
    ];
    for (number, (mode, says)) in (1..).zip(cases) {
        let (code, printed) = run_stepper(&server, &[&format!("mode={mode}")]);
        assert_eq!(code, Some(20), "{mode}: {printed}");
        let job = server.job(&format!("stepper-{number}"));
        assert_eq!((&job["state"], &job["reason"]), (&json!("FAILED"), &json!("BAD_OUTPUT")), "{mode}: {job}");
        assert!(job["message"].as_str().unwrap().contains(says), "{mode}: {}", job["message"]);
        assert_eq!(job["step_outputs"], Value::Null, "{mode}");
    }
    let (code, printed) = run_stepper(&server, &["mode=error"]);
    assert_eq!((code, &server.job("stepper-10")["reason"]), (Some(20), &json!("PLUGIN_ERROR")), "{printed}");
}

#[test]
fn a_step_cannot_return_more_than_its_memory() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    // The file of 64 MiB and its copies fit into the memory of an instance; an endless output does not.
    let (code, printed) = run_stepper(&server, &["mode=endless"]);
    assert_eq!(code, Some(24), "{printed}");
    assert_eq!(server.job("stepper-1")["reason"], "MEMORY_LIMIT");
    let plugin = guest("stepper");
    let large =
        ["run", plugin.to_str().unwrap(), "--device", "cpu", "--memory", "1GiB", "--wait", "--", "mode=large-file"];
    // Two files under one name are refused, after the host has read both.
    let output = server.saggar(&large);
    assert_eq!(output.status.code(), Some(20), "{output:?}");
    assert!(server.job("stepper-2")["message"].as_str().unwrap().contains("output `report`"));
    assert!(
        server.get("/api/v1/jobs/stepper-2/output")["files"]
            .as_array()
            .unwrap()
            .iter()
            .all(|it| it["path"] != "report")
    );
}

#[test]
fn outputs_of_a_step_are_inputs_of_another_if_their_types_fit() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    assert_eq!(run_stepper(&server, &["count=5", "share=0.5"]).0, Some(0));
    let digest = server.upload(&guest("stepper"));
    let submit = |parameters: Value| {
        let spec = json!({ "project": "next", "plugin": digest, "device": "cpu", "parameters": parameters });
        server.request("POST", "/api/v1/jobs", HttpPayload::Json(&spec))
    };
    let output = |name: &str| json!({ "job": "stepper-1", "output": name });
    let answer = submit(json!({ "count": output("count"), "share": output("share"), "flag": output("flag") }));
    assert_eq!(answer.status, 201, "{}", answer.text);
    let job = server.wait_for_job("next-1");
    assert_eq!(job["spec"]["parameters"], json!({ "mode": "well", "count": 6, "share": 0.25, "flag": true }));
    assert_eq!(job["step_outputs"]["count"]["value"], 7);

    let refusal = |parameters: Value, status: u16, says: &str| {
        let answer = submit(parameters);
        assert!(answer.status == status && answer.text.contains(says), "{} {}", answer.status, answer.text);
    };
    let report = "got output `report` of stepper-1, which has type file";
    refusal(json!({ "count": output("report") }), 400, report);
    refusal(json!({ "count": output("share") }), 400, "which has type number");
    refusal(json!({ "flag": output("rows") }), 400, "which has type dataset");
    refusal(json!({ "count": output("median") }), 404, "job stepper-1 has: count, flag, note, report, rows, share");
    refusal(json!({ "count": { "job": "stepper-9", "output": "count" } }), 404, "stepper-9");
    refusal(json!({ "count": { "job": "stepper-1" } }), 400, "parameters.count: expected an integer");
    // A step that failed has no outputs.
    assert_eq!(run_stepper(&server, &["mode=missing"]).0, Some(20));
    refusal(json!({ "count": { "job": "stepper-2", "output": "count" } }), 404, "is FAILED");
}
