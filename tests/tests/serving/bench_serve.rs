//! `saggar bench serve` against a real server, by every protocol, and `saggar bench diff`. Checks what is counted and how
//! it is reported, not the speed.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::{Command, Stdio};

use saggar_tests::{ServerProcess, binary, publish_echo, root};
use serde_json::{Value, json};

const PROTOCOLS: [&str; 3] = ["json", "binary", "grpc"];

/// Starts a server with the model `echo`, which returns its four floats.
fn serve_echo(home: &Path, arguments: &[&str]) -> ServerProcess {
    publish_echo(home);
    let server = ServerProcess::start_with(home, arguments);
    server.wait_for_version("echo", 1);
    server
}

/// Runs a measurement, expects success, and returns its document.
fn measure(server: &ServerProcess, arguments: &[&str]) -> Value {
    let text = server.saggar_ok(&[&["--json", "bench", "serve"], arguments].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn loads(document: &Value) -> &[Value] {
    document["result"]["loads"].as_array().unwrap()
}

/// Returns a count of requests over all loads, warm-ups included.
fn total(document: &Value, count: &str) -> u64 {
    loads(document)
        .iter()
        .flat_map(|load| [&load["requests"][count], &load["warm_up"][count]])
        .map(|it| it.as_u64().unwrap())
        .sum()
}

fn answered_by_server(server: &ServerProcess) -> u64 {
    let series = r#"saggar_predict_requests_total{model="echo",outcome="success",version="1"}"#;
    server.metric(series).unwrap_or(0.0) as u64
}

/// Returns the seconds of a latency.
fn seconds(load: &Value, of: &str) -> f64 {
    load["latency_seconds"][of].as_f64().unwrap_or_else(|| panic!("{of}: {load}"))
}

#[test]
fn every_answer_is_counted_as_the_server_counts_it_by_each_protocol() {
    let home = tempfile::tempdir().unwrap();
    let server = serve_echo(home.path(), &[]);
    for protocol in PROTOCOLS {
        let before = answered_by_server(&server);
        let document = measure(
            &server,
            &[
                "--model",
                "echo",
                "--protocol",
                protocol,
                "--connections",
                "2,5",
                "--duration",
                "400ms",
                "--warm-up",
                "100ms",
                "--batch",
                "3",
            ],
        );
        assert_eq!(total(&document, "answered"), answered_by_server(&server) - before, "{protocol}: {document}");
        assert_eq!(total(&document, "failed"), 0, "{protocol}: {document}");
        let connections: Vec<_> = loads(&document).iter().map(|load| load["connections"].as_u64().unwrap()).collect();
        assert_eq!(connections, [2, 5]);
        for load in loads(&document) {
            let quantiles = ["p50", "p95", "p99", "max"].map(|of| seconds(load, of));
            assert!(quantiles.is_sorted() && quantiles[0] > 0.0, "{load}");
            let phases: Vec<_> =
                load["phases"].as_array().unwrap().iter().map(|it| it["phase"].as_str().unwrap()).collect();
            assert_eq!(phases, ["read", "decode", "queue", "compute", "encode", "total"], "{protocol}");
            // The whole answer takes longer than its phases in the server.
            let in_server = load["phases"][5]["seconds"]["mean"].as_f64().unwrap();
            assert!(in_server < seconds(load, "mean"), "{load}");
            assert!(load["server"]["cpu_seconds"].as_f64().unwrap() > 0.0, "{load}");
            assert!(load["client"]["cores_busy"].as_f64().unwrap() > 0.0, "{load}");
            let digest = load["versions"][0].as_str().unwrap();
            assert!(load["versions"].as_array().unwrap().len() == 1 && digest.starts_with("echo@1 sha256:"), "{load}");
        }
        let result = &document["result"];
        assert_eq!((&result["loop"], &result["corrected_for_coordinated_omission"]), (&"closed".into(), &false.into()));
        assert_eq!((&document["kind"], &document["conditions"]["protocol"]), (&"serve".into(), &protocol.into()));
        assert!(document["machine"]["cores"].as_u64().unwrap() > 0, "{document}");
        assert!(document["properties"]["model versions"].as_str().unwrap().starts_with("echo@1 "), "{document}");
    }
}

#[test]
fn an_open_loop_sends_on_schedule_and_counts_latency_from_the_due_time() {
    let home = tempfile::tempdir().unwrap();
    let server = serve_echo(home.path(), &[]);
    for protocol in PROTOCOLS {
        let document = measure(
            &server,
            &[
                "--model",
                "echo",
                "--protocol",
                protocol,
                "--connections",
                "4",
                "--rate",
                "200",
                "--arrivals",
                "constant",
                "--duration",
                "500ms",
                "--warm-up",
                "100ms",
            ],
        );
        let load = &loads(&document)[0];
        let all = |counts: &Value| counts["answered"].as_u64().unwrap() + counts["failed"].as_u64().unwrap();
        // One request is due every 5 ms, the first one at the start.
        assert_eq!((all(&load["warm_up"]), all(&load["requests"])), (20, 100), "{protocol}: {load}");
        assert_eq!(document["result"]["corrected_for_coordinated_omission"], true);
    }
    // One connection cannot answer this rate. The requests that wait for it are late, and are not left out.
    let document = measure(
        &server,
        &[
            "--model",
            "echo",
            "--connections",
            "1",
            "--rate",
            "50000",
            "--arrivals",
            "constant",
            "--duration",
            "60ms",
            "--warm-up",
            "0s",
        ],
    );
    let load = &loads(&document)[0];
    assert_eq!(load["requests"]["answered"], 3000, "{load}");
    let in_server = load["phases"][5]["seconds"]["p50"].as_f64().unwrap();
    assert!(seconds(load, "p50") > 10.0 * in_server, "{load}");
}

#[test]
fn failed_answers_are_counted_by_cause_and_never_as_throughput() {
    let home = tempfile::tempdir().unwrap();
    let server = serve_echo(home.path(), &[]);
    let requests = home.path().join("mix.jsonl");
    let lines = [
        json!({ "model": "echo", "inputs": { "x": [1, 2, 3, 4] }, "weight": 2 }),
        json!({ "model": "echo", "body": { "x": [1, 2] } }),
        json!({ "model": "absent", "body": { "x": [1, 2, 3, 4] } }),
    ];
    std::fs::write(&requests, lines.clone().map(|line| line.to_string()).join("\n")).unwrap();
    let requests = requests.to_str().unwrap();
    let before = answered_by_server(&server);
    let document =
        measure(&server, &["--requests", requests, "--connections", "3", "--duration", "400ms", "--warm-up", "0s"]);
    let load = &loads(&document)[0];
    let answered = load["requests"]["answered"].as_u64().unwrap();
    assert_eq!((answered, &load["warm_up"]["answered"]), (answered_by_server(&server) - before, &0.into()), "{load}");
    let failures = load["failures"].as_array().unwrap();
    let causes: Vec<_> =
        failures.iter().map(|it| (it["status"].as_u64().unwrap(), it["code"].as_str().unwrap())).collect();
    assert_eq!(causes, [(400, "bad_input"), (404, "unknown_model")], "{load}");
    let failed: u64 = failures.iter().map(|it| it["requests"].as_u64().unwrap()).sum();
    assert_eq!(load["requests"]["failed"], failed);
    // The rate is that of the answers that were complete in 400 ms, at most three more were complete after it.
    let in_time = load["requests_per_second"].as_f64().unwrap() * 0.4;
    assert!(in_time <= answered as f64 + 0.5 && in_time >= answered as f64 - 3.5, "{in_time} {load}");
    assert!(failed > 0 && answered > 0, "{load}");
    assert!(document["result"]["warnings"].as_array().unwrap().len() >= 2, "{document}");

    // If nothing is answered, that is an error after the figures.
    let output = server.saggar(&["bench", "serve", "--model", "echo", "--requests", requests, "--protocol", "grpc"]);
    assert_eq!(output.status.code(), Some(7), "a body is JSON: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(home.path().join("mix.jsonl"), lines[1].to_string()).unwrap();
    let arguments = ["bench", "serve", "--requests", requests, "--connections", "1", "--duration", "100ms"];
    let output = server.saggar(&arguments);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && errors.contains("answered no request"), "{errors}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("CONNECTIONS"));
}

#[test]
fn a_server_that_is_killed_ends_the_measurement_with_what_was_answered() {
    let home = tempfile::tempdir().unwrap();
    let server = serve_echo(home.path(), &[]);
    let before = answered_by_server(&server);
    let mut command = server.command(&[
        "--json",
        "bench",
        "serve",
        "--model",
        "echo",
        "--connections",
        "4,8",
        "--duration",
        "2s",
        "--warm-up",
        "0s",
    ]);
    let measuring = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    server.wait_for("answers", |server| (answered_by_server(server) > before + 20).then_some(()));
    server.kill_and_wait();
    let output = measuring.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{errors}");
    assert!(errors.contains("at the end of the measurement") && errors.contains("saggar serve"), "{errors}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [load] = loads(&document) else { panic!("the second load has no server: {document}") };
    assert!(load["requests"]["answered"].as_u64().unwrap() > 0 && load["server_lost"] == true, "{load}");
    let kinds: Vec<_> = load["failures"].as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["connect", "connection_lost"], "{load}");
}

#[test]
fn keys_and_tls_are_those_of_the_other_commands() {
    let home = tempfile::tempdir().unwrap();
    publish_echo(home.path());
    let create = ["--json", "key", "create", "bench", "--scope", "predict"];
    let created = Command::new(binary()).args(create).env("SAGGAR_HOME", home.path()).output().unwrap();
    let created: Value = serde_json::from_slice(&created.stdout).unwrap();
    let key = created["key"].as_str().unwrap();
    let certificates = root().join("host/serve/src/tests/certificates");
    let [certificate, private] =
        ["first.crt.pem", "first.key.pem"].map(|name| certificates.join(name).display().to_string());
    let tls = ["--require-keys", "--tls-cert", &certificate, "--tls-key", &private];
    let server = ServerProcess::start_with(home.path(), &tls);
    let url = server.url().replace("127.0.0.1", "localhost");
    let bench = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.args(["--json", "bench", "serve", "--model", "echo", "--connections", "2", "--duration", "200ms"]);
        command.args(["--host", &url]).args(arguments).current_dir(home.path()).output().unwrap()
    };
    server.wait_for("the model", |_| bench(&["--ca", &certificate, "--key", key]).status.success().then_some(()));
    for protocol in PROTOCOLS {
        let output = bench(&["--ca", &certificate, "--key", key, "--protocol", protocol]);
        assert!(output.status.success(), "{protocol}: {}", String::from_utf8_lossy(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(total(&document, "answered") > 0 && total(&document, "failed") == 0, "{protocol}: {document}");
        assert!(!document.to_string().contains(key));
    }
    for (arguments, code) in [(vec!["--ca", &certificate], 4), (vec!["--key", key], 6)] {
        assert_eq!(bench(&arguments).status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn an_impossible_load_is_refused_with_a_hint() {
    let home = tempfile::tempdir().unwrap();
    let server = serve_echo(home.path(), &[]);
    for (arguments, code, words) in [
        (vec![], 2, "saggar models ls"),
        (vec!["--model", "absent"], 3, "absent"),
        (vec!["--model", "echo", "--connections", "0"], 2, "a number from 1 to"),
        (vec!["--model", "echo", "--rate", "0"], 2, "above 0"),
        (vec!["--model", "echo", "--duration", "0s"], 2, "above 0"),
        (vec!["--requests", "/nonexistent"], 3, "/nonexistent"),
    ] {
        let output = server.saggar(&[&["bench", "serve"], &arguments[..]].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && errors.contains(words), "{arguments:?}: {errors}");
    }
    let mut command = Command::new(binary());
    command.args(["bench", "serve", "--model", "echo", "--host", "http://127.0.0.1:9"]);
    let output = command.output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(6) && errors.contains("start a server with `saggar serve`"), "{errors}");
}

/// Returns a saved result whose rates are 20 samples around `rate`.
fn saved_result(place: &Path, name: &str, rate: f64, model: &str) -> String {
    let samples: Vec<f64> = (0..20).map(|index| rate * (0.99 + 0.001 * f64::from(index * 7 % 20))).collect();
    let document = json!({
        "format": 1,
        "kind": "serve",
        "program": "0.1.0",
        "measured_at": "2026-11-26T12:00:00.000Z",
        "machine": { "processor": "test", "cores": 2, "memory_bytes": 1, "system": "linux" },
        "arguments": ["bench", "serve"],
        "conditions": { "models": model },
        "properties": { "model versions": format!("{model}@1") },
        "series": [{ "group": "8 connections", "name": "requests/s", "better": "higher", "samples": samples }],
        "result": {},
    });
    let file = place.join(name);
    std::fs::write(&file, document.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn saved_results_are_compared_with_an_exit_code_for_regressions() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, rate, model: &str| saved_result(place.path(), name, rate, model);
    let (base, slower, slight, faster, other) = (
        file("base.json", 1000.0, "echo"),
        file("slower.json", 900.0, "echo"),
        file("slight.json", 970.0, "echo"),
        file("faster.json", 1100.0, "echo"),
        file("other.json", 1000.0, "digits"),
    );
    let diff = |arguments: &[&str]| {
        let output = Command::new(binary()).args(["bench", "diff"]).args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code().unwrap())
    };
    for (after, threshold, code, verdict) in [
        (&base, "5%", 0, "unchanged"),
        (&slower, "5%", 9, "REGRESSION"),
        (&slower, "15%", 0, "worse"),
        (&slight, "5%", 0, "worse"),
        (&slight, "1%", 9, "REGRESSION"),
        (&faster, "5%", 0, "better"),
    ] {
        let (out, errors, found) = diff(&[&base, after, "--threshold", threshold]);
        assert!(
            found == code && out.contains(verdict) && out.contains("8 connections"),
            "{after}: {found}\n{out}{errors}"
        );
        assert!(errors.contains("bootstrap"), "{errors}");
    }
    let (out, _, _) = diff(&[&base, &slower, "--json"]);
    let comparison: Value = serde_json::from_str(&out).unwrap();
    let figure = &comparison["figures"][0];
    assert!((figure["ratio"].as_f64().unwrap() - 0.9).abs() < 1e-9 && comparison["regressions"] == 1, "{comparison}");
    assert_eq!(diff(&[&base, &slower, "--json"]).0, out, "the interval follows from the seed");
    let (_, errors, code) = diff(&[&base, &other]);
    assert!(code == 7 && errors.contains("different models: echo and digits"), "{errors}");
    let (_, errors, code) = diff(&[&base, "/nonexistent.json"]);
    assert!(code == 3 && errors.contains("/nonexistent.json"), "{errors}");
}

#[test]
fn a_measurement_is_saved_and_compared_with_itself() {
    let home = tempfile::tempdir().unwrap();
    let server = serve_echo(home.path(), &[]);
    let file = home.path().join("serve.json");
    let file = file.to_str().unwrap();
    let arguments = ["--model", "echo", "--connections", "2", "--duration", "300ms", "--save", file];
    let printed = measure(&server, &arguments);
    let saved: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(saved, printed);
    let compared = server.saggar_ok(&["bench", "diff", file, file]);
    assert!(compared.lines().count() == 5 && compared.matches("unchanged").count() == 4, "{compared}");
}
