//! The Open Inference Protocol with its common clients, Triton's and KServe's, against the real binary.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::Command;

use saggar_store::models::{ModelPublication, ModelRegistry};
use saggar_store::state_dir::StateDir;
use saggar_tests::{HttpPayload, ServerProcess, copy_version, guest, root};

/// Starts a server with two versions of `digits`, a text model `teller`, and `echo`, which returns its floats.
fn with_models(home: &Path) -> ServerProcess {
    let echo = std::fs::read(guest("echo")).unwrap();
    let publication = ModelPublication {
        model: "echo",
        plugin: &echo,
        variables: &[],
        config: "",
        source_job: "",
        created_ms: 1,
        metrics: Default::default(),
    };
    ModelRegistry::new(StateDir::open(home).unwrap().models()).publish(&publication).unwrap();
    let server = ServerProcess::start_with_digits(home, &[]);
    copy_version(&home.join("models/digits"), 1, 2);
    server.saggar_ok(&["run", guest("teller").to_str().unwrap(), "--wait"]);
    for (model, version) in [("echo", 1), ("digits", 2), ("teller", 1)] {
        server.wait_for_version(model, version);
    }
    // Served beside the newest version.
    let first = serde_json::json!({ "version": 1 });
    let loaded = server.request("POST", "/api/v1/models/digits/load", HttpPayload::Json(&first));
    assert_eq!(loaded.status, 200, "{}", loaded.text);
    server
}

/// Runs a client's checks in an environment with the client installed.
fn check(server: &ServerProcess, script: &str) {
    let installed = Command::new(root().join(".ci/clients")).output().unwrap();
    let problem = String::from_utf8_lossy(&installed.stderr);
    assert!(installed.status.success(), "the clients could not be installed: {problem}");
    let python = String::from_utf8(installed.stdout).unwrap();
    let script = root().join("tests/clients").join(script);
    let checked = Command::new(python.trim()).arg("-B").arg(script).arg(server.url()).output().unwrap();
    let (said, problem) = (String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(checked.status.success(), "{said}\n{problem}");
}

#[test]
fn the_triton_and_kserve_clients_work() {
    let home = tempfile::tempdir().unwrap();
    let server = with_models(home.path());
    check(&server, "kserve_rest.py");
    check(&server, "triton.py");
}
