//! Hostile input against the real server: each gives a clear error, and the server continues.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{Read, Write};
use std::net::TcpStream;

use saggar_tests::{HttpPayload, HttpResponse, ServerProcess, guest, lenet};
use serde_json::{Value, json};

/// Trains `hostile` until it publishes a model with the behaviours `load` and `predict`.
fn publish(server: &ServerProcess, load: &str, predict: &str, version: u64) {
    let plugin = guest("hostile");
    let (load, predict) = (format!("load={load}"), format!("predict={predict}"));
    let run = ["run", plugin.to_str().unwrap(), "--wait", "--", "train=well", "model=hostile", &load, &predict];
    server.saggar_ok(&run);
    server.wait_for("the version", |server| {
        let model = server.request("GET", "/api/v1/models/hostile", HttpPayload::Nothing).json();
        let versions = model["versions"].as_array()?.clone();
        let state = versions.iter().find(|v| v["version"] == version)?["state"].as_str()?.to_owned();
        matches!(&*state, "READY" | "FAILED").then_some(())
    });
}

fn predict(server: &ServerProcess, path: &str, payload: HttpPayload<'_>) -> HttpResponse {
    server.request("POST", path, payload)
}

fn error_message(answer: &HttpResponse) -> String {
    let body = answer.json();
    assert!(!body["code"].as_str().unwrap_or("").is_empty(), "{}", answer.text);
    assert!(!body["request_id"].as_str().unwrap_or("").is_empty(), "{}", answer.text);
    assert!(!answer.text.contains(env!("CARGO_MANIFEST_DIR")), "a host path: {}", answer.text);
    body["error"].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_owned()
}

fn assert_alive(server: &ServerProcess) {
    assert_eq!(server.request("GET", "/healthz", HttpPayload::Nothing).status, 200);
    let good = json!({ "image": vec![[0; 8]; 8] });
    let answer = predict(server, "/models/digits/predict", HttpPayload::Json(&good));
    assert_eq!(answer.status, 200, "{}", answer.text);
}

fn with_digits(home: &std::path::Path) -> ServerProcess {
    ServerProcess::start_with_digits(home, &["--load-timeout", "5s"])
}

#[test]
fn malformed_prediction_requests_are_refused_with_the_reason() {
    let home = tempfile::tempdir().unwrap();
    let server = with_digits(home.path());
    let path = "/models/digits/predict";
    let row = vec![0; 8];
    let mut ragged = vec![row.clone(); 8];
    ragged[3].push(0);
    let deep = "[".repeat(100_000);
    let json_of = |text: &str| predict(&server, path, HttpPayload::Bytes("application/json", text.as_bytes()));
    let wrong: Vec<(&str, HttpResponse, u16, &str)> = vec![
        ("malformed", json_of("{\"image\": [1, 2"), 400, ""),
        (
            "bad UTF-8",
            predict(&server, path, HttpPayload::Bytes("application/json", b"{\"image\": \"\xff\"}")),
            400,
            "",
        ),
        ("too deep", json_of(&deep), 400, ""),
        (
            "wrong shape",
            predict(&server, path, HttpPayload::Json(&json!({ "image": [[1, 2], [3, 4]] }))),
            400,
            "[8, 8]",
        ),
        ("ragged", predict(&server, path, HttpPayload::Json(&json!({ "image": ragged }))), 400, "image"),
        (
            "out of range",
            predict(&server, path, HttpPayload::Json(&json!({ "image": vec![vec![256; 8]; 8] }))),
            400,
            "255",
        ),
        ("no number", json_of("{\"image\": 1e999}"), 400, "image"),
        ("unknown input", predict(&server, path, HttpPayload::Json(&json!({ "picture": vec![row; 8] }))), 400, "image"),
        ("unknown model", predict(&server, "/models/nothing/predict", HttpPayload::Json(&json!({}))), 404, "digits"),
        ("unknown version", predict(&server, "/models/digits@99/predict", HttpPayload::Json(&json!({}))), 404, ""),
        (
            "a path for a model",
            predict(&server, "/models/..%2f..%2fetc/predict", HttpPayload::Json(&json!({}))),
            404,
            "",
        ),
        ("not a picture", predict(&server, path, HttpPayload::Bytes("image/png", b"\x89PNG\r\n\x1a\nno")), 400, ""),
        ("no known form", predict(&server, path, HttpPayload::Bytes("text/csv", b"1,2")), 415, ""),
    ];
    for (name, answer, status, says) in wrong {
        assert_eq!(answer.status, status, "{name}: {}", answer.text);
        assert!(error_message(&answer).contains(says), "{name}: {}", answer.text);
        assert_alive(&server);
    }
}

/// Announces 100 MB and sends as much of it as the server reads.
#[test]
fn a_body_of_a_hundred_megabytes_is_refused_before_it_is_read() {
    let home = tempfile::tempdir().unwrap();
    let server = with_digits(home.path());
    let address = server.url().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = "POST /models/digits/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100000000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = vec![b' '; 1 << 16];
    let mut sent = 0;
    while sent < 100_000_000 && stream.write_all(&chunk).is_ok() {
        sent += chunk.len();
    }
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    // If the connection is reset during the flood, the response can be lost; the request is still refused.
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(sent < 100_000_000 || answer.starts_with("HTTP/1.1 413"), "all of it was taken");
    assert_alive(&server);
}

#[test]
fn components_that_are_no_plugin_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let server = with_digits(home.path());
    let whole = std::fs::read(lenet()).unwrap();
    let core_module = b"\0asm\x01\0\0\0";
    let wrong: [(&str, &[u8]); 4] =
        [("nothing", b""), ("text", b"hello"), ("a core module", core_module), ("cut off", &whole[..whole.len() / 2])];
    for (name, bytes) in wrong {
        let answer = server.request("POST", "/api/v1/plugins", HttpPayload::Bytes("application/wasm", bytes));
        assert!((400..500).contains(&answer.status), "{name}: {} {}", answer.status, answer.text);
        assert!(error_message(&answer).contains("component"), "{name}: {}", answer.text);
    }
    let echo = guest("echo");
    let refused = server.saggar(&["run", echo.to_str().unwrap(), "--data", "digits"]);
    assert_eq!(refused.status.code(), Some(7), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("train"));
    assert_alive(&server);
}

#[test]
fn misbehaving_trainings_fail_with_their_reason_and_the_server_survives() {
    let home = tempfile::tempdir().unwrap();
    let server = with_digits(home.path());
    let plugin = guest("hostile");
    let run = |train: &str, more: &[&str]| -> Value {
        let train = format!("train={train}");
        let mut arguments = vec!["run", plugin.to_str().unwrap(), "--wait", "--json", "--project", "hostile"];
        arguments.extend(more);
        arguments.extend(["--", &train]);
        let output = server.saggar(&arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str(text.lines().last().unwrap_or("")).unwrap_or_else(|_| panic!("{output:?}"))
    };
    for (train, reason) in [
        ("trap", "TRAP"),
        ("drop", "TRAP"),
        ("panic", "TRAP"),
        ("recurse", "TRAP"),
        ("memory", "MEMORY_LIMIT"),
        ("handles", "HANDLE_LIMIT"),
        ("enormous", "OUT_OF_MEMORY"),
    ] {
        let job = run(train, &[]);
        assert_eq!((job["state"].as_str(), job["reason"].as_str()), (Some("FAILED"), Some(reason)), "{train}: {job}");
        assert_eq!(job["attempt"], 1, "{train}: a plugin's own fault is not tried again");
    }
    // What was requested, what is available, and how to fix it.
    let message = run("enormous", &[])["message"].as_str().unwrap().to_owned();
    for part in ["4398046509056 bytes", " available ", "smaller batches"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    for (train, reason, message) in [
        ("graph", "OUT_OF_MEMORY", "a graph has at most 100000 nodes"),
        ("shapes", "PLUGIN_ERROR", "a tensor has at most 2147483647 elements, and [4294967295, 4294967295] has more"),
        ("rank", "PLUGIN_ERROR", "a tensor has at most 8 dimensions, not 100"),
        ("strings", "PLUGIN_ERROR", "input names have 1 to 256 bytes, not 16777216"),
        ("error", "PLUGIN_ERROR", "the dataset has no items to train on"),
    ] {
        let job = run(train, &[]);
        assert_eq!((job["state"].as_str(), job["reason"].as_str()), (Some("FAILED"), Some(reason)), "{train}: {job}");
        assert!(job["message"].as_str().unwrap().contains(message), "{train}: {job}");
    }
    // A plugin can have enough memory for such a text, but the host still refuses it.
    let job = run("gigabyte", &["--memory", "3GiB"]);
    assert_eq!((job["state"].as_str(), job["reason"].as_str()), (Some("FAILED"), Some("TRAP")), "{job}");
    assert!(job["message"].as_str().unwrap().contains("too much data is being copied"), "{job}");
    let job = run("loop", &["--max-runtime", "2s"]);
    assert_eq!(job["state"], "TIMED_OUT", "{job}");
    assert_alive(&server);
}

#[test]
fn models_that_fail_to_load_leave_the_old_version_serving() {
    let home = tempfile::tempdir().unwrap();
    let server = with_digits(home.path());
    publish(&server, "well", "well", 1);
    let signature = server.get("/api/v1/models/hostile")["signature"].clone();
    let input = signature["inputs"][0]["name"].as_str().unwrap();
    let size = signature["inputs"][0]["shape"][0].as_u64().unwrap();
    let good = json!({ input: vec![0.5; usize::try_from(size).unwrap()] });
    let ask = || {
        let url = format!("{}/models/hostile/predict", server.url());
        let agent = ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build());
        let mut answer = agent.post(&url).header("x-saggar-deadline-ms", "1500").send_json(&good).unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    };
    assert_eq!(ask().0, 200, "{:?}", ask());
    let mut version = 1;
    for load in ["loop", "trap", "drop", "memory", "enormous"] {
        version += 1;
        publish(&server, load, "well", version);
        let model = server.get("/api/v1/models/hostile");
        let bad = model["versions"].as_array().unwrap().iter().find(|v| v["version"] == version).unwrap().clone();
        assert_eq!(bad["state"], "FAILED", "{load}: {bad}");
        assert!(!bad["reason"].as_str().unwrap().is_empty());
        assert_eq!(model["serving"], 1, "{load}: the version before goes on");
        assert_eq!(ask().0, 200);
    }
    assert_alive(&server);
}
