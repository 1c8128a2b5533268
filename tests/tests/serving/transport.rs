//! The server's transport with `curl` and the command line: sockets, HTTP/2, TLS and keys.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say SKIP")]

use std::path::Path;
use std::process::{Command, Output};

use saggar_tests::{HttpPayload, ServerProcess, binary, root};
use serde_json::{Value, json};

/// Returns a certificate for localhost and 127.0.0.1, and its key.
fn certificate() -> (String, String) {
    let path = |name: &str| root().join("host/serve/src/tests/certificates").join(name).display().to_string();
    (path("first.crt.pem"), path("first.key.pem"))
}

/// Returns the output of `curl`, with the response's HTTP version and status at the end, or `None` if it is not
/// installed.
fn curl(arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new("curl").args(["-sS", "-w", " %{http_version} %{http_code}"]).args(arguments).output()
    else {
        println!("SKIP: curl is not here");
        return None;
    };
    Some(format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the binary with a state directory and without a server.
fn saggar(home: &Path, arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).env("SAGGAR_HOME", home).output().unwrap()
}

fn audit(home: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(home.join("audit.log")).unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn one_port_serves_http_1_and_http_2() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let url = format!("{}/healthz", server.url());
    let Some(first) = curl(&["--http1.1", &url]) else { return };
    assert_eq!(first, "ok 1.1 200");
    assert_eq!(curl(&["--http2-prior-knowledge", &url]).unwrap(), "ok 2 200");
    let page = curl(&["-H", "origin: https://evil.example", "-X", "POST", &format!("{}/predict", server.url())]);
    assert!(page.unwrap().contains("cross_site"));
}

#[test]
fn tls_serves_browsers_curl_and_the_command() {
    let home = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate();
    let server = ServerProcess::start_with(home.path(), &["--tls-cert", &certificate, "--tls-key", &key]);
    assert!(server.url().starts_with("https://127.0.0.1:"), "{}", server.url());
    server.saggar_ok(&["--ca", &certificate, "models", "ls"]);
    let stranger = server.saggar(&["models", "ls"]);
    assert_eq!(stranger.status.code(), Some(6), "{}", text(&stranger.stderr));
    let url = format!("{}/healthz", server.url());
    let Some(agreed) = curl(&["--cacert", &certificate, &url]) else { return };
    assert_eq!(agreed, "ok 2 200");
    assert_eq!(curl(&["--cacert", &certificate, "--http1.1", &url]).unwrap(), "ok 1.1 200");
    assert!(curl(&[&url]).unwrap().contains("certificate"), "nobody trusts it unasked");
    let plain = curl(&[&url.replace("https", "http")]).unwrap();
    assert!(plain.contains("https_only") && plain.ends_with("1.1 400"), "{plain}");
}

#[test]
fn a_bad_certificate_is_named_at_startup() {
    let home = tempfile::tempdir().unwrap();
    let (certificate, _) = certificate();
    let arguments = ["serve", "--addr", "127.0.0.1:0", "--tls-cert", &certificate, "--tls-key", &certificate];
    let refused = saggar(home.path(), &arguments);
    assert_eq!(refused.status.code(), Some(7));
    assert!(text(&refused.stderr).contains("no private key in PEM form"), "{}", text(&refused.stderr));
    assert_eq!(saggar(home.path(), &["serve", "--tls-cert", &certificate]).status.code(), Some(2));
}

#[test]
fn a_unix_socket_serves_its_owner_only() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("s.sock");
    let address = format!("unix:{}", socket.display());
    // The socket file that a killed server leaves.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let server = ServerProcess::start_with(home.path(), &["--addr", &address]);
    server.wait_for("the socket", |_| std::os::unix::net::UnixStream::connect(&socket).ok());
    let path = socket.to_str().unwrap();
    let get = |version: &str| curl(&[version, "--unix-socket", path, "http://localhost/healthz"]);
    if let Some(answer) = get("--http1.1") {
        assert_eq!(answer, "ok 1.1 200");
        assert_eq!(get("--http2-prior-knowledge").unwrap(), "ok 2 200");
    }
    let other = tempfile::tempdir().unwrap();
    let refused = saggar(other.path(), &["serve", "--device", "cpu", "--addr", &address]);
    assert_eq!(refused.status.code(), Some(5), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("a server is running on this socket"), "{}", text(&refused.stderr));
    let stopped = Command::new("kill").arg(server.pid().to_string()).status().unwrap();
    assert!(stopped.success());
    server.wait_for("the file to go with its server", |_| (!socket.exists()).then_some(()));
}

#[test]
fn a_non_loopback_address_requires_a_key() {
    let home = tempfile::tempdir().unwrap();
    let refused = saggar(home.path(), &["serve", "--device", "cpu", "--addr", "0.0.0.0:0"]);
    assert_eq!(refused.status.code(), Some(7));
    let said = text(&refused.stderr);
    assert!(said.contains("0.0.0.0:0 can be reached") && said.contains("saggar key create"), "{said}");

    let output = saggar(home.path(), &["key", "create", "shop", "--scope", "predict,jobs:read", "--rate", "100/s"]);
    let key = text(&output.stdout).trim().to_owned();
    assert!(output.status.success() && key.starts_with("sgr_"), "{}", text(&output.stderr));
    // Bound to this machine only.
    let server = ServerProcess::start_with(home.path(), &["--require-keys"]);
    let with = |key: &str, arguments: &[&str]| server.saggar(&[&["--key", key], arguments].concat());
    assert!(with(&key, &["ps"]).status.success());
    for (key, arguments, code, words) in [
        (key.as_str(), &["data", "ls"][..], 0, ""),
        (&key, &["stop", "x-1"], 4, "lacks the scope jobs:write"),
        ("sgr_nonsense", &["ps"], 4, "not known"),
    ] {
        let output = with(key, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
    let stranger = server.saggar(&["ps"]);
    assert!(text(&stranger.stderr).contains("a key is needed here"), "{}", text(&stranger.stderr));
    assert_eq!(server.request("GET", "/healthz", HttpPayload::Nothing).status, 200);

    // Both take effect without a restart: the first at once, the second a moment later.
    let boss = text(&saggar(home.path(), &["key", "create", "boss", "--scope", "admin"]).stdout).trim().to_owned();
    assert!(with(&boss, &["ps"]).status.success());
    assert!(saggar(home.path(), &["key", "revoke", "shop"]).status.success());
    server.wait_for("the key to be ended", |_| (!with(&key, &["ps"]).status.success()).then_some(()));
    let listed: Value = serde_json::from_slice(&saggar(home.path(), &["--json", "key", "ls"]).stdout).unwrap();
    let names: Vec<&Value> = listed["keys"].as_array().unwrap().iter().map(|key| &key["name"]).collect();
    assert_eq!(names, [&json!("boss")]);
    assert_eq!(saggar(home.path(), &["key", "revoke", "shop"]).status.code(), Some(3));
    assert_eq!(saggar(home.path(), &["key", "create", "boss", "--scope", "admin"]).status.code(), Some(5));
    assert_eq!(saggar(home.path(), &["key", "create", "x", "--scope", "root"]).status.code(), Some(2));

    let done: Vec<String> =
        audit(home.path()).iter().map(|line| format!("{} {}", line["action"], line["key"])).collect();
    assert_eq!(done[..3], [r#""key.create" "shop""#, r#""key.create" "boss""#, r#""key.revoke" "shop""#]);
    let log = std::fs::read_to_string(home.path().join("server.log")).unwrap();
    let key_file = std::fs::read_to_string(home.path().join("keys.json")).unwrap();
    for secret in [&key, &boss].map(|key| key.rsplit('_').next().unwrap()) {
        assert!(!log.contains(secret) && !key_file.contains(secret));
    }
}

#[test]
fn key_usage_persists_across_restarts() {
    let home = tempfile::tempdir().unwrap();
    let output = saggar(home.path(), &["key", "create", "small", "--scope", "jobs:read", "--quota", "3/month"]);
    let key = text(&output.stdout).trim().to_owned();
    let ask = |server: &ServerProcess| server.saggar(&["--key", &key, "ps"]).status.code();
    let server = ServerProcess::start_with(home.path(), &["--require-keys"]);
    assert_eq!((ask(&server), ask(&server)), (Some(0), Some(0)));
    assert!(Command::new("kill").arg(server.pid().to_string()).status().unwrap().success());
    server.wait_for("what was used to be saved", |_| {
        let saved = std::fs::read_to_string(home.path().join("key-usage.json")).unwrap_or_default();
        saved.contains("\"requests\":2").then_some(())
    });
    drop(server);
    let server = ServerProcess::start_with(home.path(), &["--require-keys"]);
    assert_eq!((ask(&server), ask(&server)), (Some(0), Some(5)), "exit 5 is a quota");
}
