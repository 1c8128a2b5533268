//! Trace contexts and spans, with the real binary and a collector.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, ServerProcess, TraceCollector, binary, lenet, publish_echo};
use serde_json::{Value, json};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// Starts a server with the model `echo` whose spans go to `url`, with further variables.
fn serve_traced(home: &Path, url: &str, variables: &[(&str, &str)]) -> ServerProcess {
    publish_echo(home);
    let mut command = Command::new(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--home"]).arg(home);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", url).env("OTEL_BSP_SCHEDULE_DELAY", "50");
    variables.iter().for_each(|(name, value)| _ = command.env(name, value));
    let server = ServerProcess::from_command(command, home);
    server.wait_for_version("echo", 1);
    server
}

/// Runs `curl` with this path and returns what it printed.
fn curl(server: &ServerProcess, path: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("curl").args(["-sS"]).args(arguments).arg(format!("{}{path}", server.url())).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Predicts with `echo`, with these headers, and returns the response's header `traceresponse`, or an empty text.
fn predict(server: &ServerProcess, headers: &[String]) -> String {
    let mut arguments =
        vec!["-D", "-", "-o", "/dev/null", "-H", "content-type: application/json", "-d", r#"{"x": [1, 2, 3, 4]}"#];
    headers.iter().for_each(|header| arguments.extend(["-H", header]));
    let head = String::from_utf8(curl(server, "/models/echo/predict", &arguments)).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let value = head.lines().find_map(|line| line.strip_prefix("traceresponse: "));
    value.unwrap_or_default().trim().to_owned()
}

/// Waits until the server has sent its spans, and returns those of a trace.
fn wait_for_spans(server: &ServerProcess, collector: &TraceCollector, trace: &str, count: usize) -> Vec<Value> {
    let mut requests = 0;
    server.wait_for("spans", |_| {
        let now = collector.requests().len();
        if now == std::mem::replace(&mut requests, now) {
            return None;
        }
        let spans = collector.spans().into_iter().filter(|span| span["trace"] == trace).collect::<Vec<_>>();
        (spans.len() >= count).then_some(spans)
    })
}

fn named<'s>(spans: &'s [Value], name: &str) -> &'s Value {
    let found: Vec<_> = spans.iter().filter(|span| span["name"] == name).collect();
    assert_eq!(found.len(), 1, "{name} in {spans:#?}");
    found[0]
}

#[test]
fn a_prediction_is_a_trace_of_its_phases() {
    let collector = TraceCollector::start();
    let home = tempfile::tempdir().unwrap();
    let variables = [("OTEL_SERVICE_NAME", "digits server"), ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a%20b")];
    let server = serve_traced(home.path(), &collector.url(), &variables);
    let headers =
        [format!("traceparent: 00-{TRACE}-{SPAN}-01"), "tracestate: rojo=1".into(), "x-request-id: mine".into()];
    let answer = predict(&server, &headers);
    let spans = wait_for_spans(&server, &collector, TRACE, 6);
    let request = named(&spans, "POST /models/{model}/predict");
    assert_eq!(answer, format!("00-{TRACE}-{}-01", request["id"].as_str().unwrap()));
    assert_eq!((&request["parent"], &request["kind"], &request["state"]), (&json!(SPAN), &json!(2), &json!("rojo=1")));
    assert_eq!(request["attributes"]["http.response.status_code"], 200);
    assert_eq!(request["attributes"]["saggar.request_id"], "mine");
    assert_eq!(request["resource"]["service.name"], "digits server");
    let batch = named(&spans, "batch");
    assert_eq!(
        (&batch["attributes"]["saggar.model"], &batch["attributes"]["saggar.batch.items"]),
        (&json!("echo"), &json!(1))
    );
    let time = |span: &Value| (span["began"].as_u64().unwrap(), span["ended"].as_u64().unwrap());
    for (name, parent) in
        [("decode", request), ("queue", request), ("batch", request), ("compute", batch), ("encode", request)]
    {
        let span = named(&spans, name);
        assert_eq!(span["parent"], parent["id"], "{name}");
        let ((began, ended), (outer_began, outer_ended)) = (time(span), time(parent));
        assert!(outer_began <= began && began <= ended && ended <= outer_ended, "{name}: {spans:#?}");
    }
    assert!(time(named(&spans, "queue")).1 <= time(batch).0, "{spans:#?}");
    let head = &collector.requests()[0].head;
    assert_eq!(head[0], "POST /v1/traces HTTP/1.1");
    for wanted in ["content-type: application/x-protobuf", "x-team: a b"] {
        assert!(head.iter().any(|line| line == wanted), "{head:?}");
    }
    let exported = server.metric("saggar_trace_spans_exported_total").unwrap();
    assert!(exported >= 6.0, "{exported}");
}

#[test]
fn malformed_contexts_begin_a_trace_and_the_samplers_decide() {
    let collector = TraceCollector::start();
    let home = tempfile::tempdir().unwrap();
    let server = serve_traced(home.path(), &collector.url(), &[]);
    for bad in [
        "",
        "x",
        "00-0-0-01",
        &format!("00-{TRACE}-{}-01", "0".repeat(16)),
        &format!("ff-{TRACE}-{SPAN}-01"),
        &"a".repeat(9000),
    ] {
        let answer = predict(&server, &[format!("traceparent: {bad}")]);
        assert!(answer.starts_with("00-") && answer.ends_with("-01") && !answer.contains(TRACE), "{bad}: {answer}");
    }
    let twice = [format!("traceparent: 00-{TRACE}-{SPAN}-01"), format!("traceparent: 00-{TRACE}-{SPAN}-01")];
    assert!(!predict(&server, &twice).contains(TRACE));
    // The caller does not record this trace, so neither does the server.
    let unsampled = predict(&server, &[format!("traceparent: 00-{TRACE}-{SPAN}-00")]);
    assert!(unsampled.contains(TRACE) && unsampled.ends_with("-00"), "{unsampled}");
    let last = predict(&server, &[]);
    let trace = last.split('-').nth(1).unwrap();
    wait_for_spans(&server, &collector, trace, 6);
    assert!(!collector.spans().iter().any(|span| span["trace"] == TRACE));
    drop(server);
    let server = serve_traced(home.path(), &collector.url(), &[("OTEL_TRACES_SAMPLER", "always_off")]);
    let before = collector.requests().len();
    assert!(predict(&server, &[]).ends_with("-00"));
    assert_eq!(collector.requests().len(), before);
}

#[test]
fn without_a_collector_a_context_is_only_handed_on() {
    let home = tempfile::tempdir().unwrap();
    publish_echo(home.path());
    let server = ServerProcess::start(home.path());
    server.wait_for_version("echo", 1);
    assert_eq!(predict(&server, &[]), "");
    assert!(predict(&server, &[format!("traceparent: 00-{TRACE}-{SPAN}-01")]).starts_with(&format!("00-{TRACE}-")));
    assert_eq!(server.metric("saggar_trace_spans_exported_total"), Some(0.0));
}

/// Returns a varint field and a length-delimited field of protocol buffers.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    assert!(length < 128);
    [&[number << 3 | 2, length], bytes].concat()
}

#[test]
fn a_call_of_grpc_belongs_to_its_callers_trace() {
    let collector = TraceCollector::start();
    let home = tempfile::tempdir().unwrap();
    let server = serve_traced(home.path(), &collector.url(), &[]);
    let values: Vec<u8> = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let input = [field(1, b"x"), field(2, b"FP32"), field(3, &[1, 4])].concat();
    let message = [field(1, b"echo"), field(5, &input), field(7, &values)].concat();
    let body = home.path().join("call");
    std::fs::write(&body, [&[0, 0, 0, 0, u8::try_from(message.len()).unwrap()], &*message].concat()).unwrap();
    let head = curl(
        &server,
        "/inference.GRPCInferenceService/ModelInfer",
        &[
            "--http2-prior-knowledge",
            "-D",
            "-",
            "-o",
            "/dev/null",
            "-H",
            "content-type: application/grpc",
            "-H",
            "te: trailers",
            "-H",
            &format!("traceparent: 00-{TRACE}-{SPAN}-01"),
            "--data-binary",
            &format!("@{}", body.display()),
        ],
    );
    let head = String::from_utf8_lossy(&head).into_owned();
    assert!(head.contains("grpc-status: 0") && head.contains(&format!("traceresponse: 00-{TRACE}-")), "{head}");
    let spans = wait_for_spans(&server, &collector, TRACE, 6);
    let request = named(&spans, "POST /inference.GRPCInferenceService/ModelInfer");
    assert_eq!((&request["parent"], &request["attributes"]["rpc.grpc.status"]), (&json!(SPAN), &json!("OK")));
    assert_eq!(named(&spans, "queue")["parent"], request["id"]);
}

#[test]
fn a_job_and_its_attempts_belong_to_the_trace_of_the_request() {
    let collector = TraceCollector::start();
    let home = tempfile::tempdir().unwrap();
    let server = serve_traced(home.path(), &collector.url(), &[]);
    server.push_digits();
    let digest = server.upload(&lenet());
    let spec = json!({
        "project": "digits", "plugin": digest, "parameters": { "epochs": 1 },
        "data": [{ "dataset": "digits", "mount": "/data" }]
    });
    let parent = format!("traceparent: 00-{TRACE}-{SPAN}-01");
    let answer = curl(
        &server,
        "/api/v1/jobs",
        &["-H", "content-type: application/json", "-H", &parent, "-d", &spec.to_string()],
    );
    let job: Value = serde_json::from_slice(&answer).unwrap();
    let name = job["name"].as_str().unwrap_or_else(|| panic!("{job}"));
    assert_eq!(server.wait_for_job(name)["state"], "SUCCEEDED");
    let spans = wait_for_spans(&server, &collector, TRACE, 4);
    let request = named(&spans, "POST /api/v1/jobs");
    let (job, attempt) = (named(&spans, "job"), named(&spans, "job attempt"));
    assert_eq!((&job["parent"], &job["kind"], &job["status"]), (&request["id"], &json!(5), &json!(0)));
    assert_eq!(
        job["attributes"],
        json!({ "saggar.job": name, "saggar.project": "digits", "saggar.state": "SUCCEEDED" })
    );
    assert_eq!((&attempt["parent"], &attempt["attributes"]["saggar.attempt"]), (&job["id"], &json!(1)));
    assert_eq!(named(&spans, "job queue")["parent"], job["id"]);
    let time = |span: &Value, which: &str| span[which].as_u64().unwrap();
    assert!(time(job, "began") <= time(attempt, "began") && time(attempt, "ended") <= time(job, "ended"), "{spans:#?}");
}

#[test]
fn webhooks_carry_the_trace_of_the_request() {
    let receiver = TraceCollector::start();
    let home = tempfile::tempdir().unwrap();
    publish_echo(home.path());
    let address = format!("{}/hooks", receiver.url());
    let server = ServerProcess::start_with(home.path(), &["--allow-webhook", &address]);
    server.wait_for_version("echo", 1);
    let body = json!({ "input": { "x": [1, 2, 3, 4] }, "model": "echo", "webhook": address }).to_string();
    let parent = format!("traceparent: 00-{TRACE}-{SPAN}-01");
    let headers = ["-H", "content-type: application/json", "-H", &parent, "-H", "tracestate: rojo=1", "-d", &body];
    let made: Value = serde_json::from_slice(&curl(&server, "/predictions", &headers)).unwrap();
    assert_eq!(made["status"], "succeeded", "{made}");
    let requests = server.wait_for("both events", |_| Some(receiver.requests()).filter(|all| all.len() == 2));
    for request in requests {
        let head = request.head.join("\n");
        assert!(head.contains(&format!("traceparent: 00-{TRACE}-")) && !head.contains(SPAN), "{head}");
        assert!(head.contains("tracestate: rojo=1"), "{head}");
    }
}

#[test]
fn a_job_continues_its_trace_after_a_restart_of_the_server() {
    let collector = TraceCollector::start();
    let home = tempfile::tempdir().unwrap();
    // The worker's log is that of the attempt, so its lines name the trace there.
    let variables = [("SAGGAR_LOG", "debug")];
    let server = serve_traced(home.path(), &collector.url(), &variables);
    server.push_digits();
    let digest = server.upload(&lenet());
    let spec = json!({
        "project": "digits", "plugin": digest, "parameters": { "epochs": 2000 }, "checkpoint_every": { "milliseconds": 1000 },
        "data": [{ "dataset": "digits", "mount": "/data" }]
    });
    let parent = format!("traceparent: 00-{TRACE}-{SPAN}-01");
    let headers = ["-H", "content-type: application/json", "-H", &parent, "-d", &spec.to_string()];
    let job: Value = serde_json::from_slice(&curl(&server, "/api/v1/jobs", &headers)).unwrap();
    let name = job["name"].as_str().unwrap_or_else(|| panic!("{job}")).to_owned();
    server.wait_for_step(&name, 10);
    let log = server.saggar_ok(&["logs", &name]);
    assert!(log.contains(TRACE), "{log}");
    server.kill_and_wait();
    let server = serve_traced(home.path(), &collector.url(), &variables);
    server.wait_for("another attempt", |server| (server.job(&name)["attempt"].as_u64() == Some(2)).then_some(()));
    server.wait_for_step(&name, 10);
    server.saggar_ok(&["stop", &name]);
    assert_eq!(server.wait_for_job(&name)["state"], "CANCELLED");
    let spans = wait_for_spans(&server, &collector, TRACE, 6);
    let job = named(&spans, "job");
    let mut attempts: Vec<&Value> = spans.iter().filter(|span| span["name"] == "job attempt").collect();
    attempts.sort_by_key(|span| span["attributes"]["saggar.attempt"].as_u64());
    let numbers: Vec<&Value> = attempts.iter().map(|span| &span["attributes"]["saggar.attempt"]).collect();
    assert_eq!(numbers, [&json!(1), &json!(2)], "{spans:#?}");
    assert!(attempts.iter().all(|span| span["parent"] == job["id"]), "{spans:#?}");
}

#[test]
fn a_collector_that_fails_costs_spans_and_no_request() {
    let home = tempfile::tempdir().unwrap();
    // A port on which nothing listens, and one that accepts connections and never answers.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = TraceCollector::start();
    refusing.answer_with(503);
    let small = [("OTEL_BSP_MAX_QUEUE_SIZE", "8"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "60000")];
    for (url, reason, variables) in [
        (format!("http://{closed}"), "unreachable", &[][..]),
        (refusing.url(), "refused", &[]),
        (format!("http://{}", silent.local_addr().unwrap()), "queue_full", &small),
    ] {
        let server = serve_traced(home.path(), &url, variables);
        let began = Instant::now();
        (0..20).for_each(|_| _ = predict(&server, &[]));
        assert!(began.elapsed() < Duration::from_secs(30), "{reason}: {:?}", began.elapsed());
        let series = format!(r#"saggar_trace_spans_dropped_total{{reason="{reason}"}}"#);
        server.wait_for(reason, |server| (server.metric(&series)? > 0.0).then_some(()));
        assert_eq!(server.request("GET", "/readyz", HttpPayload::Nothing).status, 200);
        let log = std::fs::read_to_string(home.path().join("server.log")).unwrap();
        let warnings = log.lines().filter(|line| line.contains("the collector takes no spans")).count();
        assert!(reason == "queue_full" || warnings >= 1, "{log}");
        server.signal("-TERM");
        assert!(server.wait_for_exit(Duration::from_secs(30)).unwrap().success());
    }
}
