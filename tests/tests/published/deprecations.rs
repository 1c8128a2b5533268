//! What is deprecated is announced where it is used: in responses, in `/openapi.json`, and by `saggar doctor`.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use saggar_tests::{ServerProcess, binary, root};
use serde_json::{Value, json};

/// Replaces the configuration of the model `digits`, and returns the whole response.
fn configure(server: &ServerProcess, config: &Value) -> String {
    let mut stream = TcpStream::connect(server.url().trim_start_matches("http://")).unwrap();
    let body = config.to_string();
    let head = "PUT /api/v1/models/digits/config HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                content-type: application/json";
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer
}

/// Runs `saggar doctor` in a directory and returns its findings of this name.
fn doctor(directory: &Path, host: &str, name: &str) -> Vec<Value> {
    let mut command = Command::new(binary());
    command.args(["--json", "--host", host, "doctor", "--home"]).arg(directory).current_dir(directory);
    let output = command.env("XDG_CONFIG_HOME", directory).output().unwrap();
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    findings.into_iter().filter(|finding| finding["name"] == name).collect()
}

#[test]
fn a_deprecated_member_is_announced_counted_and_named_by_doctor() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let uses = || server.get("/api/v1/deprecations")["deprecations"][0]["uses"].as_u64().unwrap();
    let answer = configure(&server, &json!({ "instances": { "max": 2 } })).to_lowercase();
    assert!(!answer.contains("\r\ndeprecation:"), "{answer}");
    assert!(uses() == 0 && doctor(home.path(), server.url(), "deprecated").is_empty());

    let answer = configure(&server, &json!({ "instances_max": 3 })).to_lowercase();
    assert!(answer.contains("\r\ndeprecation: @1795651200\r\n"), "{answer}");
    let link = "\r\nlink: </docs/reference/deprecations>; rel=\"deprecation\"; type=\"text/html\"\r\n";
    assert!(answer.contains(link) && !answer.contains("\r\nsunset:"), "{answer}");
    configure(&server, &json!({ "instances_max": 2 }));
    assert_eq!(uses(), 2);
    assert_eq!(server.metric("saggar_deprecated_uses_total{name=\"model.json instances_max\"}"), Some(2.0));
    let findings = doctor(home.path(), server.url(), "deprecated");
    assert_eq!(findings.len(), 1, "{findings:?}");
    let (what, hint) = (findings[0]["what"].as_str().unwrap(), findings[0]["hint"].as_str().unwrap());
    assert!(what.contains("instances_max: used 2 times") && hint.contains("\"instances\""), "{what} {hint}");
    assert_eq!(findings[0]["state"], "OLD");

    let member = &server.get("/openapi.json")["components"]["schemas"]["ModelConfig"]["properties"]["instances_max"];
    assert_eq!(member["deprecated"], true, "{member}");
}

#[test]
fn doctor_names_deprecated_keys_of_the_project_file() {
    let home = tempfile::tempdir().unwrap();
    let project = "manifest = 1\n[project]\nname = \"p\"\n[model.m]\nmin_instances = 1\n";
    std::fs::write(home.path().join("saggar.toml"), project).unwrap();
    // Nothing listens there, so only the file is checked.
    let findings = doctor(home.path(), "http://127.0.0.1:9", "deprecated");
    assert_eq!(findings.len(), 1, "{findings:?}");
    let what = findings[0]["what"].as_str().unwrap();
    assert!(what.contains("min_instances") && what.contains("instances = { min = 1 }"), "{what}");
}

#[test]
fn doctor_names_stored_plugins_of_another_interface_version() {
    let home = tempfile::tempdir().unwrap();
    let version = home.path().join("models/older/1");
    std::fs::create_dir_all(&version).unwrap();
    for (number, state) in [("0.1.7", "OLD"), ("0.0.9", "FAILED"), ("0.1.0", "")] {
        let text = format!("(component (instance $i) (export \"saggar:plugin/predictor@{number}\" (instance $i)))");
        std::fs::write(version.join("plugin.wasm"), wat::parse_str(text).unwrap()).unwrap();
        let findings = doctor(home.path(), "http://127.0.0.1:9", "plugins");
        let of_model: Vec<&Value> =
            findings.iter().filter(|it| it["what"].as_str().unwrap().contains("older@1")).collect();
        if state.is_empty() {
            assert!(of_model.is_empty(), "{of_model:?}");
            continue;
        }
        assert_eq!((of_model.len(), of_model[0]["state"].as_str()), (1, Some(state)), "{of_model:?}");
        let what = of_model[0]["what"].as_str().unwrap();
        assert!(what.contains(&format!("saggar:plugin {number}, and this program speaks 0.1.0")), "{what}");
    }
}

/// The page that responses link to names each deprecated part and its replacement.
#[test]
fn the_documentation_names_everything_deprecated() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let page = std::fs::read_to_string(root().join("host/docs/reference/deprecations.md")).unwrap();
    for deprecation in server.get("/api/v1/deprecations")["deprecations"].as_array().unwrap() {
        for key in ["name", "operation", "replacement"] {
            let text = deprecation[key].as_str().unwrap();
            assert!(page.contains(&format!("`{text}`")), "{text}");
        }
    }
}
