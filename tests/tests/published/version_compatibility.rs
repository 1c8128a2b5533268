//! Version compatibility: commands with servers, plugins with hosts.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use saggar_tests::{HttpPayload, ServerProcess, binary, guest};
use serde_json::{Value, json};

#[test]
fn plugin_worlds_are_listed_and_a_newer_world_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let worlds: Value = serde_json::from_str(&server.saggar_ok(&["plugins", "worlds", "--json"])).unwrap();
    let world = |name: &str| worlds.as_array().unwrap().iter().find(|world| world["world"] == name).unwrap();
    assert_eq!(world("train-plugin")["exports"], json!(["trainer"]));
    assert!(world("predict-plugin")["imports"].as_array().unwrap().contains(&json!("graphs")));
    assert!(!world("predict-plugin")["imports"].as_array().unwrap().contains(&json!("job")));
    let version = world("model-plugin")["version"].as_str().unwrap();
    let table = server.saggar_ok(&["plugins", "worlds"]);
    assert!(table.contains("model-plugin") && table.contains(version), "{table}");
    assert!(server.saggar_ok(&["plugins", "worlds", "-q"]).contains(&format!("model-plugin@{version}\n")));

    // A run that requires a world gets a plugin of it, or an error that names the plugin's world.
    let (steady, echo) = (guest("steady"), guest("echo"));
    let run = |world: &str, plugin: &Path| {
        let output =
            server.saggar(&["run", plugin.to_str().unwrap(), "--env", world, "--device", "cpu", "--", "steps=2"]);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let pinned = format!("train-plugin@{version}");
    assert_eq!(run(&pinned, &steady).0, 0);
    let (code, errors) = run(&pinned, &echo);
    assert!(code == 7 && errors.contains(&format!("saggar:plugin/predictor@{version}")), "{errors}");
    assert!(errors.contains(&format!("exports saggar:plugin/trainer@{version}")), "{errors}");
    let (code, errors) = run("train-plugin@99.0.0", &steady);
    assert!(code == 7 && errors.contains("99.0.0") && errors.contains(&pinned), "both versions are named: {errors}");

    let newer = r#"(component (instance $i) (export "saggar:plugin/trainer@99.0.0" (instance $i)))"#;
    let newer = wat::parse_str(newer).unwrap();
    let refused = server.request("POST", "/api/v1/plugins", HttpPayload::Bytes("application/wasm", &newer));
    assert_eq!(refused.status, 422, "{}", refused.text);
    let error = refused.json()["error"].as_str().unwrap().to_owned();
    assert!(error.contains("99.0.0") && error.contains(version), "both versions are named: {error}");
    assert!(error.contains("take a newer saggar, or build the plugin against"), "{error}");
    let file = home.path().join("newer.wasm");
    std::fs::write(&file, &newer).unwrap();
    let run = server.saggar(&["run", file.to_str().unwrap()]);
    assert_eq!(run.status.code(), Some(7), "{run:?}");
}

/// Sends a request as raw bytes, and returns the whole response.
fn raw_request(server: &ServerProcess, request: &str) -> String {
    let mut stream = TcpStream::connect(server.url().trim_start_matches("http://")).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_client_of_an_incompatible_version_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let own = server.get("/version")["version"].as_str().unwrap().to_owned();
    let ask = |method: &str, agent: &str| {
        let body = "{\"keep_last\": 1}";
        raw_request(
            &server,
            &format!(
                "{method} /api/v1/jobs{} HTTP/1.1\r\nhost: localhost\r\nuser-agent: {agent}\r\nconnection: close\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                if method == "POST" { "/gc" } else { "" },
                body.len()
            ),
        )
    };
    let refused = ask("POST", "saggar/9.0.0");
    assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
    assert!(refused.contains("\"version_skew\"") && refused.contains("saggar 9.0.0"), "{refused}");
    assert!(refused.contains(&format!("this server is saggar {own}")), "both versions are named: {refused}");
    for (method, agent) in [("GET", "saggar/9.0.0"), ("POST", "curl/9.0.0"), ("POST", &*format!("saggar/{own}"))] {
        let response = ask(method, agent);
        assert!(response.starts_with("HTTP/1.1 200 "), "{method} by {agent}: {response}");
        assert!(response.contains(&format!("x-saggar-version: {own}")), "{response}");
    }
}

/// Starts a server that responds to every request with `body` and this version. Sends the first lines of requests over
/// the channel.
fn server_of(version: &'static str, body: &'static str) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
                head.push(byte[0]);
            }
            // Sent before the response, so that a client that has the response finds it in the channel.
            let head = String::from_utf8_lossy(&head).into_owned();
            if sender.send(head.lines().next().unwrap_or_default().to_owned()).is_err() {
                return;
            }
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-saggar-version: {version}\r\n\
                 content-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (url, asked)
}

#[test]
fn a_server_of_an_incompatible_version_is_reported_with_both_versions() {
    let ask = |version: &'static str| {
        let (url, asked) = server_of(version, "{\"jobs\": []}");
        let output = Command::new(binary()).args(["--host", &url, "ps"]).output().unwrap();
        let requests = asked.try_iter().count();
        (output.status.code(), String::from_utf8(output.stderr).unwrap(), requests)
    };
    let own = Command::new(binary()).arg("--version").output().unwrap();
    let own = String::from_utf8(own.stdout).unwrap().trim().trim_start_matches("saggar ").to_owned();
    let (code, errors, requests) = ask("9.9.0");
    assert_eq!((code, requests), (Some(7), 1), "{errors}");
    assert!(errors.contains("saggar 9.9.0") && errors.contains(&format!("saggar {own}")), "{errors}");
    assert!(errors.contains("this command is the older one") && errors.contains("make build"), "{errors}");
    // A difference of one minor version is accepted, and so is a server that does not state its version.
    let mut numbers = own.split('.').map(|number| number.parse::<u64>().unwrap());
    let (major, minor) = (numbers.next().unwrap(), numbers.next().unwrap());
    for near in [format!("{major}.{}.7", minor + 1), own, "unknown".to_owned()] {
        let (code, errors, requests) = ask(String::leak(near));
        assert_eq!((code, requests), (Some(0), 1), "{errors}");
    }
}
