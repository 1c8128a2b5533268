//! Runs the commands in the documentation of `examples` against the real binary.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::process::Command;

use saggar_tests::{ServerProcess, root};

/// Runs a program of `examples` and returns its output.
fn run(server: &ServerProcess, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).env("SAGGAR_HOST", server.url()).current_dir(root());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{printed}\n{errors}", output.status);
    printed
}

#[test]
fn the_curl_example_makes_every_form_of_prediction() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let printed = run(&server, "bash", &["examples/curl/predict.sh"]);
    let parts: Vec<&str> = printed.split("\n# ").skip(1).collect();
    assert_eq!(parts.len(), 8, "{printed}");
    for part in &parts[..6] {
        assert!(part.lines().nth(1).unwrap().starts_with("{\"label\":"), "{part}");
    }
    // The same picture in four forms gives the same answer.
    let answer = |part: &str| part.lines().find_map(|line| line.split_once('{').map(|(_, json)| json.to_owned()));
    for form in [2, 4, 5, 6] {
        assert_eq!(answer(parts[form]), answer(parts[1]), "{}", parts[form]);
    }
    assert!(parts[6].contains("event: done\ndata: {"), "{}", parts[6]);
    for header in ["x-saggar-model: digits@1", "server-timing: read;dur="] {
        assert!(parts[7].to_lowercase().contains(header), "{}", parts[7]);
    }
}

#[test]
fn the_triton_client_example_runs() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    // Finds or creates an environment with the client.
    let python = run(&server, "bash", &[".ci/clients"]);
    let printed = run(&server, python.trim(), &["-B", "examples/tritonclient/predict.py"]);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], "takes image UINT8 [-1, 8, 8]", "{printed}");
    assert_eq!(lines[1..].iter().filter(|line| line.starts_with("digit ")).count(), 3, "{printed}");
    // The environment has the packages that the example requires.
    let wanted = std::fs::read_to_string(root().join("examples/tritonclient/requirements.txt")).unwrap();
    let installed = std::fs::read_to_string(root().join("tests/clients/requirements.txt")).unwrap();
    let wanted = wanted.trim().replace("[http]", "[grpc,http]");
    assert!(installed.lines().any(|line| line == wanted), "{wanted} is not among {installed}");
}

#[test]
fn the_tensorflow_serving_client_example_runs() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let printed = run(&server, "python3", &["-B", "examples/tensorflow-serving-client/predict.py"]);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], "version 1 AVAILABLE", "{printed}");
    assert_eq!(lines[1..].iter().filter(|line| line.starts_with("digit ")).count(), 2, "{printed}");
}
