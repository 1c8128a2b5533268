//! HTTP requests that a plugin answers with its own code, through the real binary: what they can do, and what a hostile
//! plugin or client cannot.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, HttpResponse, ServerProcess, binary, guest};
use serde_json::json;

/// Versions that are published while requests run.
const SWAPS: u64 = 10;

fn publish(server: &ServerProcess, version: u64, parameters: &[&str]) {
    let plugin = guest("handlers");
    server.saggar_ok(&[&["run", plugin.to_str().unwrap(), "--wait", "--"], parameters].concat());
    server.wait_for("the version", |server| {
        let model = server.request("GET", "/api/v1/models/handlers", HttpPayload::Nothing).json();
        let versions = model["versions"].as_array()?;
        versions.iter().any(|it| it["version"] == version && it["state"] == "READY").then_some(())
    });
}

fn with_handlers(home: &Path) -> ServerProcess {
    let server = ServerProcess::start(home);
    publish(&server, 1, &["offset=3"]);
    server
}

fn get(server: &ServerProcess, path: &str) -> HttpResponse {
    server.request("GET", &format!("/models/handlers{path}"), HttpPayload::Nothing)
}

fn requests(server: &ServerProcess, outcome: &str) -> f64 {
    let labels = format!(r#"model="handlers",outcome="{outcome}",version="1""#);
    server.metric(&format!("saggar_handler_requests_total{{{labels}}}")).unwrap_or_default()
}

fn log(server: &ServerProcess) -> String {
    std::fs::read_to_string(server.home().join("server.log")).unwrap()
}

/// Sends a request over a new connection and returns a reader of its response.
fn open(server: &ServerProcess, head: &str) -> BufReader<TcpStream> {
    let address = server.url().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("{head}\r\nhost: {address}\r\n\r\n").as_bytes()).unwrap();
    BufReader::new(stream)
}

/// Reads lines up to one that begins with `begin`.
fn read_to_line(reader: &mut impl BufRead, begin: &str) -> Vec<String> {
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.starts_with(begin)) {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the end came before {begin:?}: {lines:?}");
        lines.push(line);
    }
    lines
}

#[test]
fn handlers_answer_with_the_plugins_own_code() {
    let home = tempfile::tempdir().unwrap();
    let server = with_handlers(home.path());
    for prefix in ["/models/handlers", "/models/handlers@1", "/models/handlers@stable", ""] {
        let answer = server.request("GET", &format!("{prefix}/hello/J%C3%BC?times=2"), HttpPayload::Nothing);
        assert_eq!(answer.status, 200, "{prefix}: {}", answer.text);
        assert_eq!(answer.text, "Hello, J\u{fc}, from version one! Hello, J\u{fc}, from version one!");
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
        assert_eq!(answer.header("x-saggar-model"), "handlers@1");
    }
    assert_eq!(get(&server, "/hello/nobody").text, "Nobody is here.", "the literal route comes first");
    let sum = server.request("POST", "/models/handlers/add", HttpPayload::Json(&json!({ "x": 4 })));
    assert_eq!((sum.status, sum.json()), (200, json!({ "y": 7 })), "the graph adds the published weight");
    assert_eq!(get(&server, "/of/4").json()["y"], 7.0, "routes of predictions work beside");

    for method in ["PUT", "PATCH"] {
        let answer = server.request(method, "/models/handlers/items/a.b", HttpPayload::Bytes("text/plain", b"body"));
        assert_eq!((answer.status, answer.header("location")), (201, "/items/a.b"), "{}", answer.text);
        assert!(answer.text.to_uppercase().contains(method) && answer.text.ends_with(" a.b body"), "{}", answer.text);
    }
    let gone = server.request("DELETE", "/items/7", HttpPayload::Nothing);
    assert_eq!((gone.status, gone.text.as_str()), (204, ""));
    for (method, path, allow) in [
        ("GET", "/models/handlers/items/7", "PUT, DELETE, PATCH"),
        ("POST", "/hello/x", "GET, HEAD"),
        ("PUT", "/models/handlers/of/1", "GET, HEAD, POST"),
        ("DELETE", "/of/1", "GET, HEAD, POST"),
    ] {
        let answer = server.request(method, path, HttpPayload::Nothing);
        assert_eq!((answer.status, answer.header("allow")), (405, allow), "{method} {path}: {}", answer.text);
        assert_eq!(answer.json()["code"], "method_not_allowed");
    }
    for path in ["/models/handlers/none", "/models/handlers/hello", "/models/handlers/hello/a/b", "/none"] {
        assert_eq!(server.request("PUT", path, HttpPayload::Nothing).status, 404, "{path}");
    }
    let wrong = server.request("POST", "/models/handlers/add", HttpPayload::Json(&json!({ "x": "four" })));
    assert_eq!(wrong.status, 422);
    let error = wrong.json()["error"].as_str().unwrap().to_owned();
    assert!(error.contains("parameter `x` must be a number, not \"four\""), "{error}");
    let mistaken = get(&server, "/refused");
    assert_eq!(mistaken.status, 422);
    assert!(mistaken.text.contains("no path parameter `nothing`") && mistaken.text.contains("src/lib.rs:"));
    let query = get(&server, "/hello/x?a=%FF");
    assert_eq!((query.status, query.json()["code"].clone()), (400, json!("bad_parameter")));
}

#[test]
fn a_head_request_has_the_head_of_a_get() {
    let home = tempfile::tempdir().unwrap();
    let server = with_handlers(home.path());
    let whole = get(&server, "/page");
    assert_eq!(whole.header("content-security-policy"), "sandbox allow-forms allow-scripts");
    assert_eq!((whole.header("x-content-type-options"), whole.header("cache-control")), ("nosniff", "max-age=60"));
    for prefix in ["/models/handlers", ""] {
        let mut reader = open(&server, &format!("HEAD {prefix}/page HTTP/1.1\r\nconnection: close"));
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n"), "{text}");
        let length = format!("content-length: {}\r\n", whole.text.len());
        assert!(text.contains(&length) && text.contains("content-type: text/html"), "{text}");
        assert!(!text.contains("etag"), "{text}");
    }
    let mut reader = open(&server, "HEAD /models/handlers/endless HTTP/1.1\r\nconnection: close");
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && !text.contains("content-length"), "{text}");
    server.wait_for("the end of the stream", |server| (requests(server, "cancelled") == 1.0).then_some(()));
}

#[test]
fn the_first_piece_arrives_before_the_end_and_a_disconnect_ends_the_handler() {
    let home = tempfile::tempdir().unwrap();
    let server = with_handlers(home.path());
    let counted = get(&server, "/count/20000");
    assert_eq!((counted.status, counted.header("x-kind")), (200, "count"));
    let numbers: Vec<u32> = counted.text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers, (0..=20000).collect::<Vec<_>>(), "no piece is lost or reordered");

    // The stream has no end: what can be read arrived before it.
    let mut reader = open(&server, "GET /endless HTTP/1.1");
    let lines = read_to_line(&mut reader, "first");
    assert!(lines[0].starts_with("HTTP/1.1 200") && lines.contains(&"transfer-encoding: chunked\r\n".to_owned()));
    drop(reader);
    server.wait_for("the end of the handler", |server| (requests(server, "cancelled") == 1.0).then_some(()));

    // So does a client that waits for a response which is not begun.
    let reader = open(&server, "GET /loop HTTP/1.1\r\nx-saggar-deadline-ms: 600000");
    server.wait_for("the request", |server| {
        let busy = r#"saggar_handler_in_flight{model="handlers",version="1"}"#;
        (server.metric(busy) == Some(1.0)).then_some(())
    });
    drop(reader);
    server.wait_for("the end of the loop", |server| (requests(server, "cancelled") == 2.0).then_some(()));
    assert_eq!(get(&server, "/hello/x").status, 200, "the instances are free again");
}

#[test]
fn a_stream_that_fails_or_never_ends_is_cut() {
    let home = tempfile::tempdir().unwrap();
    let server = with_handlers(home.path());
    for (path, deadline_ms) in [("/late-panic", 30_000), ("/twice", 30_000), ("/endless", 500)] {
        let head = format!("GET {path} HTTP/1.1\r\nx-saggar-deadline-ms: {deadline_ms}");
        let mut reader = open(&server, &head);
        let began = Instant::now();
        let mut bytes = Vec::new();
        // A reset counts as the end too.
        let _ = reader.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        // A connection that is cut at once may not have carried the head.
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 200"), "{path}: {text:.200}");
        assert!(!text.ends_with("\r\n0\r\n\r\n"), "{path}: the client must not take the body for complete");
        assert!(began.elapsed() < Duration::from_secs(25), "{path}: {:?}", began.elapsed());
    }
    // A client sees the cut before the server has recorded why.
    server.wait_for("the ends of all", |server| {
        let ended = (requests(server, "plugin_error"), requests(server, "timeout"));
        (ended == (2.0, 1.0)).then_some(())
    });
    server.wait_for_log("interrupted in handle after 500 ms");
    let log = log(&server);
    assert!(log.contains("src/lib.rs:") && log.contains("this handler always panics"), "{log}");
    assert!(log.contains("a second response"), "{log}");
}

#[test]
fn hostile_handlers_get_errors_and_leave_the_server_intact() {
    let home = tempfile::tempdir().unwrap();
    let server = with_handlers(home.path());
    let cases = [
        ("/panic", 500, "plugin_trap"),
        ("/greedy", 500, "plugin_error"),
        ("/huge/70000000", 500, "plugin_error"),
        ("/status/100", 500, "plugin_error"),
        ("/status/199", 500, "plugin_error"),
        ("/status/600", 500, "plugin_error"),
        ("/status/0", 500, "plugin_error"),
        ("/header?name=set-cookie&value=a", 500, "plugin_error"),
        ("/header?name=Transfer-Encoding&value=chunked", 500, "plugin_error"),
        ("/header?name=content-length&value=1", 500, "plugin_error"),
        ("/header?name=x-a&value=b%0d%0aset-cookie:%20c", 500, "plugin_error"),
        ("/header?name=x-a%0d%0aset-cookie&value=b", 500, "plugin_error"),
        ("/header?name=set-cookie&value=a&stream=1", 422, "plugin_rejected"),
        ("/header?name=x-a&value=b%0d%0ac&stream=1", 422, "plugin_rejected"),
        ("/grants", 422, "plugin_rejected"),
        ("/refused", 422, "plugin_rejected"),
    ];
    for (path, status, code) in cases {
        let answer = get(&server, path);
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{path}: {}", answer.text);
        assert_eq!(answer.header("set-cookie"), "", "{path}");
    }
    let answer = get(&server, "/header?name=X-A&value=b");
    assert_eq!((answer.status, answer.header("x-a")), (200, "b"));
    assert_eq!(get(&server, "/status/599").status, 599);
    assert_eq!(get(&server, "/huge/1000000").text.len(), 1_000_000);

    let late = ureq::get(format!("{}/loop", server.url())).config().http_status_as_error(false).build();
    let late = late.header("x-saggar-deadline-ms", "300").call().unwrap();
    assert_eq!(late.status().as_u16(), 504);
    let body = vec![b'a'; (10 << 20) + 1];
    let large = server.request("PUT", "/items/7", HttpPayload::Bytes("text/plain", &body));
    assert_eq!((large.status, large.json()["code"].clone()), (413, json!("too_large")));
    let log = log(&server);
    for line in [
        "status: expected a status from 200 to 599, got 100",
        "header \\\"set-cookie\\\": expected one of allow",
        "expected printable ASCII",
        "this handler always panics",
        "needs more memory than the",
    ] {
        assert!(log.contains(line) || log.contains(&line.replace('\\', "")), "{line}: {log}");
    }
    assert_eq!(get(&server, "/hello/x").status, 200);
    assert_eq!(get(&server, "/of/4").json()["y"], 7.0);
    let in_flight = server.metric(r#"saggar_predict_in_flight{model="handlers",version="1"}"#);
    assert_eq!(in_flight, Some(0.0));
}

#[test]
fn streams_leave_an_instance_for_predictions() {
    let home = tempfile::tempdir().unwrap();
    let server = with_handlers(home.path());
    let streams: Vec<_> =
        (0..3).map(|_| open(&server, "GET /endless HTTP/1.1\r\nx-saggar-deadline-ms: 600000")).collect();
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(get(&server, "/of/4").json()["y"], 7.0);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    drop(streams);
    server.wait_for("the end of the streams", |server| (requests(server, "cancelled") == 3.0).then_some(()));
}

#[test]
fn versions_swap_while_handlers_run_and_aliases_reach_theirs() {
    let home = tempfile::tempdir().unwrap();
    let server = with_handlers(home.path());
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let (server, stop, answered) = (&server, &stop, &answered);
                scope.spawn(move || {
                    while !stop.load(Ordering::Acquire) {
                        let path = if client % 2 == 0 { "/hello/x" } else { "/count/50" };
                        let answer = get(server, path);
                        assert_eq!(answer.status, 200, "{}", answer.text);
                        assert!(answer.text.ends_with("!") || answer.text.ends_with("\n50\n"), "{}", answer.text);
                        answered.fetch_add(1, Ordering::AcqRel);
                    }
                })
            })
            .collect();
        for version in 2..2 + SWAPS {
            publish(&server, version, &[&format!("offset={version}"), &format!("name=number {version}")]);
        }
        stop.store(true, Ordering::Release);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    assert!(answered.load(Ordering::Acquire) > 4 * SWAPS, "{answered:?} answers");
    assert_eq!(get(&server, "/hello/x").text, "Hello, x, from number 11!");
    server.saggar_ok(&["models", "canary", "handlers", "3", "100%"]);
    for path in ["/models/handlers/hello/x", "/models/handlers@canary/hello/x", "/models/handlers@3/hello/x"] {
        let answer = server.request("GET", path, HttpPayload::Nothing);
        assert_eq!((answer.text.as_str(), answer.header("x-saggar-model")), ("Hello, x, from number 3!", "handlers@3"));
    }
    let sum = server.request("POST", "/models/handlers/add", HttpPayload::Json(&json!({ "x": 4 })));
    assert_eq!(sum.json(), json!({ "y": 7 }), "the weights are those of the canary");
}

#[test]
fn handlers_need_the_right_to_predict_and_see_no_credentials() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().to_str().unwrap();
    let key = |name: &str, scope: &str| {
        let made = Command::new(binary()).args(["key", "create", name, "--scope", scope, "--home", state]).output();
        let made = String::from_utf8(made.unwrap().stdout).unwrap();
        made.split_whitespace().find(|word| word.starts_with("sgr_")).unwrap().to_owned()
    };
    let boss = key("boss", "admin");
    let server = ServerProcess::start_with(home.path(), &["--require-keys"]).with_key(&boss);
    publish(&server, 1, &["offset=3"]);
    let (predict, read) = (key("predictor", "predict"), key("reader", "jobs:read"));
    for (key, status) in [(&predict, 200), (&read, 403)] {
        for path in ["/models/handlers/headers", "/headers"] {
            let answer = server.request_as(Some(key), "GET", path, HttpPayload::Nothing);
            assert_eq!(answer.status, status, "{path}: {}", answer.text);
            assert!(!answer.text.contains(key.as_str()), "{}", answer.text);
            if status == 200 {
                assert!(answer.text.contains("user-agent=") && !answer.text.contains("authorization"));
            }
        }
    }
    assert_eq!(server.request_as(None, "GET", "/models/handlers/headers", HttpPayload::Nothing).status, 401);
    for method in ["PUT", "PATCH", "DELETE"] {
        assert_eq!(server.request_as(Some(&read), method, "/items/7", HttpPayload::Nothing).status, 403, "{method}");
    }
}

#[test]
fn handlers_are_listed_and_described() {
    let home = tempfile::tempdir().unwrap();
    let server = with_handlers(home.path());
    let model = server.get("/api/v1/models/handlers");
    let routes = model["signature"]["routes"].as_array().unwrap();
    let greeting = json!({
        "methods": ["GET"], "path": "/hello/{name}", "kind": "handler", "description": "Greets `name`, `times` times",
    });
    assert!(routes.contains(&greeting), "{routes:?}");
    assert!(routes.iter().any(|route| route["path"] == "/of/{x}" && route["kind"] == "prediction"), "{routes:?}");
    let description = server.saggar_ok(&["models", "show", "handlers"]);
    assert!(
        description.contains("route    GET /hello/{name}  handler  Greets `name`, `times` times\n"),
        "{description}"
    );
    assert!(description.contains("route    GET,POST /of/{x}  prediction\n"), "{description}");
    let document = server.get("/openapi.json");
    let item = &document["paths"]["/models/handlers/items/{key}"];
    let methods: Vec<&String> = item.as_object().unwrap().keys().filter(|key| *key != "parameters").collect();
    assert_eq!(methods, ["put", "patch", "delete"], "{item}");
    assert_eq!(item["parameters"][0]["name"], "key");
    assert_eq!(document["paths"]["/models/handlers/hello/{name}"]["get"]["summary"], "Greets `name`, `times` times");
    let worlds = server.saggar_ok(&["plugins", "worlds"]);
    assert!(worlds.contains("model-http-plugin") && worlds.contains("http-handler"), "{worlds}");
}
