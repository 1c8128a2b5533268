//! The access log and the server's log, with the real binary: their lines, rotation, and targets that take nothing.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::{Command, Stdio};

use saggar_tests::{HttpPayload, ServerProcess, binary, publish_echo};
use serde_json::{Value, json};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Starts a server with the model `echo` and these arguments.
fn serve_echo(home: &Path, arguments: &[&str]) -> ServerProcess {
    publish_echo(home);
    let server = ServerProcess::start_with(home, arguments);
    server.wait_for_version("echo", 1);
    server
}

/// Predicts with `echo`, with these headers, and returns the response's head and body.
fn predict(server: &ServerProcess, headers: &[&str]) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-i", "-H", "content-type: application/json", "-d", r#"{"x": [1, 2, 3, 4]}"#]);
    headers.iter().for_each(|header| _ = curl.args(["-H", header]));
    let output = curl.arg(format!("{}/models/echo/predict?secret=1", server.url())).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the lines of a log in JSON for which `is_wanted` is true, once there is one.
fn wait_for_lines(server: &ServerProcess, log: &Path, is_wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    server.wait_for("lines of the log", |_| {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let lines =
            whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
        let lines: Vec<Value> = lines.filter(&is_wanted).collect();
        (!lines.is_empty()).then_some(lines)
    })
}

#[test]
fn a_line_has_who_asked_what_was_answered_and_where_the_time_went() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("access.log");
    let server = serve_echo(home.path(), &["--access-log", log.to_str().unwrap()]);
    let answer = predict(&server, &["x-request-id: mine", "user-agent: test \"1\"", &format!("traceparent: {PARENT}")]);
    let line = wait_for_lines(&server, &log, |line| line["request_id"] == "mine").remove(0);
    let body = answer.rsplit("\r\n\r\n").next().unwrap();
    for (name, expected) in [
        ("client", json!("127.0.0.1")),
        ("principal", json!("loopback")),
        ("method", json!("POST")),
        ("path", json!("/models/echo/predict")),
        ("route", json!("/models/{model}/predict")),
        ("protocol", json!("HTTP/1.1")),
        ("status", json!(200)),
        ("bytes", json!(body.len())),
        ("model", json!("echo")),
        ("version", json!(1)),
        ("predictions", json!(1)),
        ("trace_id", json!(TRACE)),
        ("user_agent", json!("test \"1\"")),
    ] {
        assert_eq!(line[name], expected, "{name} in {line}");
    }
    let seconds = |name: &str| line[name].as_f64().unwrap();
    let phases: f64 =
        ["decode", "queue", "compute", "encode"].map(|phase| seconds(&format!("{phase}_seconds"))).iter().sum();
    assert!(seconds("compute_seconds") > 0.0 && phases <= seconds("seconds"), "{line}");
    assert!(!std::fs::read_to_string(&log).unwrap().contains("secret"), "queries are not logged");
    let missing = server.request("GET", "/api/v1/jobs/none-1", HttpPayload::Nothing);
    assert_eq!(missing.status, 404);
    let line = wait_for_lines(&server, &log, |line| line["path"] == "/api/v1/jobs/none-1").remove(0);
    assert_eq!((&line["status"], &line["bytes"], line.get("model")), (&json!(404), &json!(missing.text.len()), None));
}

#[test]
fn the_common_format_is_read_by_its_pattern() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("access.log");
    let arguments = ["--access-log", log.to_str().unwrap(), "--access-log-format", "common"];
    let server = serve_echo(home.path(), &arguments);
    predict(&server, &["x-request-id: mine", "user-agent: curl/8", "referer: http://a/\"b"]);
    let line = server.wait_for("the line", |_| {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().find(|line| line.contains("request_id=mine")).map(str::to_owned)
    });
    let head = line.strip_prefix("127.0.0.1 - loopback [").unwrap();
    let (time, rest) = head.split_once("] ").unwrap();
    assert!(time.ends_with(" +0000") && time.matches('/').count() == 2, "{line}");
    let rest = rest.strip_prefix(r#""POST /models/echo/predict HTTP/1.1" 200 "#).unwrap();
    let (bytes, rest) = rest.split_once(' ').unwrap();
    assert!(bytes.parse::<u64>().unwrap() > 10, "{line}");
    assert!(rest.starts_with(r#""http://a/\"b" "curl/8" request_id=mine seconds=0."#), "{line}");
    assert!(rest.contains(" model=echo@1 decode=0.") && rest.contains(" compute=0."), "{line}");
}

#[test]
fn a_rotated_log_continues_in_a_new_file_after_sighup() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("access.log");
    let server = serve_echo(home.path(), &["--access-log", log.to_str().unwrap()]);
    predict(&server, &["x-request-id: before"]);
    wait_for_lines(&server, &log, |line| line["request_id"] == "before");
    let rotated = home.path().join("access.log.1");
    std::fs::rename(&log, &rotated).unwrap();
    server.signal("-HUP");
    server.wait_for("the new file", |_| log.exists().then_some(()));
    predict(&server, &["x-request-id: after"]);
    wait_for_lines(&server, &log, |line| line["request_id"] == "after");
    assert!(!std::fs::read_to_string(rotated).unwrap().contains("after"));
    let lost = server.metric(r#"saggar_log_lines_lost_total{log="access"}"#);
    assert_eq!(lost, Some(0.0));
}

#[test]
fn a_full_disk_and_a_blocked_pipe_lose_lines_and_no_request() {
    let home = tempfile::tempdir().unwrap();
    publish_echo(home.path());
    // Every write to this device fails as on a full disk. Standard error is a pipe that is never read.
    let mut command = Command::new(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--access-log", "/dev/full", "--home"]);
    command.arg(home.path()).env("SAGGAR_LOG", "trace").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut address = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut address).unwrap();
    let get = |path: &str| {
        let output = Command::new("curl").args(["-sS", &format!("{}{path}", address.trim())]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let lost = |log: &str| {
        let page = get("/metrics");
        saggar_tests::series_value(&page, &format!(r#"saggar_log_lines_lost_total{{log="{log}"}}"#)).unwrap()
    };
    // At the level `trace`, each request writes several lines: the pipe and then the queue fill.
    let began = std::time::Instant::now();
    let mut requests = 0;
    while lost("server") == 0.0 {
        assert!(began.elapsed() < std::time::Duration::from_secs(120), "{requests} requests lost no line");
        // One command for all, which repeats the request with another query each time.
        assert_eq!(get("/healthz?[1-2000]"), "ok".repeat(2000));
        requests += 2000;
    }
    assert!(lost("access") >= f64::from(requests), "{} of {requests}", lost("access"));
    let ended = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(ended.success());
    // The end of the server waits a moment for the log, and no longer.
    let began = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "the server does not end");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn the_log_in_json_names_the_request_the_job_and_the_trace() {
    let home = tempfile::tempdir().unwrap();
    publish_echo(home.path());
    let server = ServerProcess::start_with(home.path(), &["--log-format", "json"]);
    server.wait_for_version("echo", 1);
    server.push_digits();
    let digest = server.upload(&saggar_tests::lenet());
    let data = json!([{ "dataset": "digits", "mount": "/data" }]);
    let spec = json!({ "project": "digits", "plugin": digest, "data": data, "parameters": { "epochs": 1 } });
    let output = Command::new("curl")
        .args(["-sS", "-H", "content-type: application/json", "-H", "x-request-id: mine", "-d", &spec.to_string()])
        .args(["-H", &format!("traceparent: {PARENT}"), &format!("{}/api/v1/jobs", server.url())])
        .output()
        .unwrap();
    let job: Value = serde_json::from_slice(&output.stdout).unwrap();
    let log = home.path().join("server.log");
    let submitted = wait_for_lines(&server, &log, |line| line["message"] == "job submitted").remove(0);
    assert_eq!((&submitted["request_id"], &submitted["trace_id"]), (&json!("mine"), &json!(TRACE)), "{submitted}");
    let ended = wait_for_lines(&server, &log, |line| line["message"] == "attempt ended").remove(0);
    assert_eq!((&ended["job"], &ended["trace_id"]), (&job["name"], &json!(TRACE)), "{ended}");
    assert_eq!((&ended["level"], &ended["attempt"]), (&json!("info"), &json!(1)), "{ended}");
}

#[test]
fn an_access_log_that_cannot_be_opened_is_refused_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(binary())
        .args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--access-log", "/proc/none/access.log", "--home"])
        .arg(home.path())
        .output()
        .unwrap();
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && problem.contains("--access-log /proc/none/access.log"), "{problem}");
}
