//! The guest library for JavaScript: the network of the reference plugin `mlp` with every option of the training, and
//! handlers of HTTP requests.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert, and it says SKIP")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use saggar_tests::{
    HttpPayload, ServerProcess, binary, build_plugin, check_declared_input_of_mlp, check_logged_items_of_mlp, plugin,
    root,
};
use serde_json::json;

/// Writes the plugin of the tests, with the guest library of the binary under test.
fn write_guest(place: &Path) -> PathBuf {
    let written =
        Command::new(binary()).args(["init", "guest", "--template", "javascript"]).current_dir(place).output();
    assert!(written.unwrap().status.success());
    let guest = place.join("guest");
    for file in ["package.json", "src/plugin.js"] {
        std::fs::copy(root().join("tests/guests-javascript/mlp").join(file), guest.join(file)).unwrap();
    }
    guest
}

#[test]
fn the_same_network_gets_the_same_bits_from_javascript_and_from_rust() {
    let place = tempfile::tempdir().unwrap();
    let Some(javascript) = build_plugin(&write_guest(place.path())) else { return };
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.push_digits();
    for (model, component) in [("rust", plugin("mlp")), ("javascript", javascript.clone())] {
        let run = ["run", component.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", "5", "--"];
        let model = format!("model={model}");
        let job = server.saggar_ok(&[&run[..], &["epochs=3", "unit=64", &model]].concat());
        assert_eq!(server.wait_for_job(job.trim())["state"], "SUCCEEDED");
    }
    assert_eq!(server.weights_digest("javascript"), server.weights_digest("rust"));
    check_logged_items_of_mlp(&server, &javascript);
    check_declared_input_of_mlp(&server, &javascript);
    for optimizer in ["adam", "sgd", "muon"] {
        let test = ["plugins", "test", javascript.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--"];
        let parameters = ["epochs=200", "unit=128", "everything=true", &format!("optimizer={optimizer}")];
        let tested = server.saggar(&[&test[..], &parameters].concat());
        assert!(tested.status.success(), "{optimizer}: {}", String::from_utf8_lossy(&tested.stderr));
    }
    check_handlers(&server);
}

fn check_handlers(server: &ServerProcess) {
    server.wait_for_version("javascript", 1);
    let get = |path: &str| server.request("GET", &format!("/models/javascript{path}"), HttpPayload::Nothing);
    let hello = get("/hello/J%C3%BC?times=2");
    assert_eq!((hello.status, hello.text.as_str()), (200, "Hello, J\u{fc}!Hello, J\u{fc}!"), "{}", hello.text);
    assert_eq!(hello.header("content-type"), "text/plain; charset=utf-8");
    let missing = get("/missing");
    assert_eq!((missing.status, missing.json()), (404, json!({ "error": "no such thing" })));
    assert_eq!(get("/page").header("content-type"), "text/html; charset=utf-8");
    let item = server.request("PUT", "/models/javascript/items/7", HttpPayload::Nothing);
    assert_eq!((item.status, item.text.as_str()), (200, "PUT /items/7"));
    let numbers: Vec<u32> = get("/count/500").text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers, (0..=500).collect::<Vec<_>>());
    let body = json!({ "image": vec![0; 64] });
    let answer = server.request("POST", "/models/javascript/classify", HttpPayload::Json(&body));
    let image = json!({ "image": vec![vec![0; 8]; 8] });
    let predicted = server.request("POST", "/models/javascript/predict", HttpPayload::Json(&image));
    assert_eq!((answer.status, &answer.json()["label"]), (200, &predicted.json()["label"]), "{}", answer.text);
    for (path, says) in [("/fail", "RangeError: a mistake"), ("/nothing", "a handler returns a text")] {
        let failed = get(path);
        assert_eq!(failed.status, 422, "{path}");
        assert!(failed.text.contains(says), "{}", failed.text);
    }
    assert!(get("/fail").text.contains("src/plugin.js:"), "the place is the plugin's line");
    let bad = server.request("POST", "/models/javascript/classify", HttpPayload::Bytes("application/json", b"{"));
    assert!(bad.status == 422 && bad.text.contains("the body is not JSON"), "{}", bad.text);

    let address = server.url().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!("GET /models/javascript/endless HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "more"), "a piece arrives while the generator goes on");
    drop(lines);
    let cancelled = r#"saggar_handler_requests_total{model="javascript",outcome="cancelled",version="1"}"#;
    server.wait_for("the end of the generator", |server| (server.metric(cancelled) == Some(1.0)).then_some(()));
}

#[test]
fn mistakes_in_a_javascript_plugin_are_reported_when_it_is_built() {
    let place = tempfile::tempdir().unwrap();
    let guest = write_guest(place.path());
    let package = std::fs::read_to_string(guest.join("package.json")).unwrap();
    let build = |package: &str| {
        std::fs::write(guest.join("package.json"), package).unwrap();
        let built = Command::new(binary()).arg("build").arg(&guest).output().unwrap();
        String::from_utf8_lossy(&built.stderr).into_owned()
    };
    let unknown = build(&package.replace("model-http-plugin", "pluto"));
    assert!(unknown.contains("saggar.world: expected model-plugin or model-http-plugin"), "{unknown}");
    let without = build(&package.replace("model-http-plugin", "model-plugin"));
    if without.contains("is needed to build this plugin") {
        return println!("SKIP: {without}");
    }
    assert!(without.contains("Mlp has handlers()") && without.contains("model-http-plugin"), "{without}");
}
