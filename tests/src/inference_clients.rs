//! The clients of the Open Inference Protocol, and a server with the models that they ask.

use std::path::Path;
use std::process::Command;

use saggar_store::models::{ModelPublication, ModelRegistry};
use saggar_store::state_dir::StateDir;

use crate::guests::guest;
use crate::http::HttpPayload;
use crate::root;
use crate::server::{ServerProcess, copy_version};

/// Starts a server, with further arguments, that has two versions of `digits`, a text model `teller`, and `echo`, which
/// returns its floats.
pub fn serve_inference_models(home: &Path, arguments: &[&str]) -> ServerProcess {
    publish_echo(home);
    let server = ServerProcess::start_with_digits(home, arguments);
    copy_version(&home.join("models/digits"), 1, 2);
    server.saggar_ok(&["run", guest("teller").to_str().expect("a path that is text"), "--wait"]);
    for (model, version) in [("echo", 1), ("digits", 2), ("teller", 1)] {
        server.wait_for_version(model, version);
    }
    // Served beside the newest version.
    let first = serde_json::json!({ "version": 1 });
    let loaded = server.request("POST", "/api/v1/models/digits/load", HttpPayload::Json(&first));
    assert_eq!(loaded.status, 200, "{}", loaded.text);
    server
}

/// Publishes the model `echo` in a state directory.
pub fn publish_echo(home: &Path) {
    let echo = std::fs::read(guest("echo")).expect("the component is built");
    let publication = ModelPublication {
        model: "echo",
        plugin: &echo,
        variables: &[],
        config: "",
        inputs: Default::default(),
        source_job: "",
        created_ms: 1,
        metrics: Default::default(),
        card: None,
        provenance: Default::default(),
    };
    let home = StateDir::open(home).expect("a state directory");
    ModelRegistry::new(home.models()).publish(&publication).expect("the directory is writable");
}

/// Runs a script of `tests/clients` in an environment with the clients installed.
pub fn run_inference_client(script: &str, arguments: &[&str]) {
    client_output("tests/clients/requirements.txt", script, arguments);
}

/// Runs a script of `tests/clients` in an environment with the packages of `requirements`, expects success, and returns
/// what it printed.
///
/// # Panics
/// If the packages cannot be installed, or the script fails.
pub fn client_output(requirements: &str, script: &str, arguments: &[&str]) -> String {
    let installed = Command::new(root().join(".ci/clients")).arg(requirements).output().expect("bash is installed");
    let problem = String::from_utf8_lossy(&installed.stderr);
    assert!(installed.status.success(), "the clients could not be installed: {problem}");
    let python = String::from_utf8_lossy(&installed.stdout);
    let script = root().join("tests/clients").join(script);
    let checked = Command::new(python.trim()).arg("-B").arg(script).args(arguments).output();
    let checked = checked.expect("the environment has Python");
    let (printed, problem) = (String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(checked.status.success(), "{printed}\n{problem}");
    printed.into_owned()
}
