//! HTTP requests that a plugin in Python answers: every kind of value that a handler can return, and its mistakes.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert, and it says SKIP")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use saggar_tests::{HttpPayload, HttpResponse, ServerProcess, binary, build_plugin, root};
use serde_json::json;

const SOURCE: &str = include_str!("../../guests-python/greeter/src/greeter.py");

/// Returns the line of the plugin that ends with this comment, as errors name it.
fn line_of(comment: &str) -> String {
    let at = SOURCE.lines().position(|line| line.ends_with(&format!("# {comment}"))).unwrap();
    format!("src/greeter.py:{}", at + 1)
}

fn get(server: &ServerProcess, path: &str) -> HttpResponse {
    server.request("GET", &format!("/models/greeter{path}"), HttpPayload::Nothing)
}

/// One test for all of this, because a server compiles the plugin for half a minute in a debug build.
#[test]
fn a_python_plugin_answers_http_requests() {
    let place = tempfile::tempdir().unwrap();
    let copied =
        Command::new("cp").arg("-r").arg(root().join("tests/guests-python/greeter")).arg(place.path()).status();
    assert!(copied.unwrap().success());
    let Some(plugin) = build_plugin(&place.path().join("greeter")) else { return };
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.saggar_ok(&["run", plugin.to_str().unwrap(), "--device", "cpu", "--wait", "--", "factor=3"]);
    server.wait_for_version("greeter", 1);
    check_values(&server);
    check_mistakes(&server);
    check_streams(&server);
    let description = server.saggar_ok(&["models", "show", "greeter"]);
    assert!(description.contains("route    GET /hello/{name}  handler  Greets somebody\n"), "{description}");
    assert_eq!(get(&server, "/hello/Ada").status, 200);
}

fn check_values(server: &ServerProcess) {
    let hello = get(server, "/hello/J%C3%BC?times=2&times=3");
    assert_eq!((hello.status, hello.text.as_str()), (200, "Hello, J\u{fc}!Hello, J\u{fc}!"));
    assert_eq!(hello.header("content-type"), "text/plain; charset=utf-8");
    let body = json!({ "values": [1, 2.5] });
    let values = server.request("POST", "/multiply", HttpPayload::Json(&body));
    assert_eq!((values.status, values.json()), (200, json!({ "values": [3.0, 7.5] })), "the graph multiplies");
    assert_eq!(values.header("content-type"), "application/json");
    let missing = get(server, "/missing");
    assert_eq!((missing.status, missing.json()), (404, json!({ "error": "no such thing" })));
    let page = get(server, "/page");
    assert_eq!((page.header("content-type"), page.header("cache-control")), ("text/html; charset=utf-8", "max-age=60"));
    for method in ["PUT", "PATCH"] {
        let item = server.request(method, "/items/7", HttpPayload::Bytes("text/plain", b"body"));
        assert_eq!((item.status, item.text), (201, format!("{method} /items/7 body")));
    }
    assert_eq!(server.request("DELETE", "/items/7", HttpPayload::Nothing).status, 204);
    let wrong = get(server, "/items/7");
    assert_eq!((wrong.status, wrong.header("allow")), (405, "PUT, DELETE, PATCH"));
    let answer = server.request("POST", "/models/greeter/predict", HttpPayload::Json(&json!({ "x": 2 })));
    assert_eq!(answer.json()["y"], 6.0);
}

fn check_mistakes(server: &ServerProcess) {
    let text = server.request("POST", "/multiply", HttpPayload::Bytes("application/json", b"{"));
    assert_eq!(text.status, 422, "{}", text.text);
    assert!(text.text.contains("JSONDecodeError") && text.text.contains("src/greeter.py:"), "{}", text.text);
    let nothing = get(server, "/nothing");
    assert_eq!(nothing.status, 422);
    assert!(nothing.text.contains("a handler returns str, bytes, dict"), "{}", nothing.text);
    let failed = get(server, "/raise");
    assert_eq!((failed.status, failed.json()["code"].clone()), (500, json!("plugin_error")));
    let refused = get(server, "/header?name=Set-Cookie&value=a");
    assert_eq!((refused.status, refused.header("set-cookie")), (500, ""));
    assert_eq!(get(server, "/header?name=X-A&value=b").header("x-a"), "b");
    // Lines are written by another thread than the one that answers.
    server.wait_for_log("RuntimeError: a mistake");
    server.wait_for_log(&line_of("raise"));
}

fn check_streams(server: &ServerProcess) {
    let counted = get(server, "/count/2000").text;
    let numbers: Vec<u32> = counted.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers, (0..=2000).collect::<Vec<_>>());
    let open = |path: &str| {
        let address = server.url().strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).unwrap();
        BufReader::new(stream)
    };
    let mut endless = open("/endless");
    let mut lines = (&mut endless).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "more"), "a piece arrives while the generator goes on");
    drop(endless);
    let cancelled = r#"saggar_handler_requests_total{model="greeter",outcome="cancelled",version="1"}"#;
    server.wait_for("the end of the generator", |server| (server.metric(cancelled) == Some(1.0)).then_some(()));
    let mut bytes = Vec::new();
    let _ = open("/late").read_to_end(&mut bytes);
    assert!(!String::from_utf8_lossy(&bytes).ends_with("\r\n0\r\n\r\n"), "the body is not complete");
    server.wait_for_log("too late");
    server.wait_for_log(&line_of("late"));
}

#[test]
fn handlers_without_their_world_are_reported_when_the_plugin_is_built() {
    let place = tempfile::tempdir().unwrap();
    let plugin = place.path().join("greeter");
    std::fs::create_dir_all(plugin.join("src")).unwrap();
    std::fs::write(plugin.join("src/greeter.py"), SOURCE).unwrap();
    let manifest = "[project]\nname = \"greeter\"\n[tool.saggar]\nmodule = \"greeter\"\n";
    std::fs::write(plugin.join("pyproject.toml"), manifest).unwrap();
    let built = Command::new(binary()).arg("build").arg(&plugin).output().unwrap();
    let messages = String::from_utf8_lossy(&built.stderr).into_owned();
    if messages.contains("is needed to build this plugin") {
        return println!("SKIP: {messages}");
    }
    assert!(messages.contains("Greeter has methods with `@route`: set `world = \"model-http-plugin\"`"), "{messages}");
}
