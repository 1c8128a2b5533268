//! `saggar dev` through the real binary: a template's plugin is trained, served, edited, broken and fixed, and nothing
//! is left behind.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use saggar_tests::{DEV_WAIT_TIMEOUT, DevProcess, ServerProcess, binary, child_processes, lenet, root};
use serde_json::{Value, json};

/// Returns whether the process is running. A zombie is not.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

/// Returns the project that `saggar init` creates from the template `echo`. It is built beside the reference plugins,
/// because it shares most dependencies with them.
fn echo_project(place: &Path) -> std::path::PathBuf {
    let init = Command::new(binary()).args(["init", "parrot", "--template", "echo"]).current_dir(place).output();
    assert!(init.unwrap().status.success());
    let project = place.join("parrot");
    let target = root().join("plugins/target");
    std::fs::create_dir(project.join(".cargo")).unwrap();
    std::fs::write(project.join(".cargo/config.toml"), format!("[build]\ntarget-dir = {target:?}\n")).unwrap();
    let file = project.join("saggar.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("target/saggar/parrot.wasm", "parrot.wasm");
    std::fs::write(file, text.replace("\"saggar build\"", "\"saggar build -o parrot.wasm\"")).unwrap();
    project
}

#[test]
fn a_saved_source_is_rebuilt_reloaded_and_serves() {
    let place = tempfile::tempdir().unwrap();
    let project = echo_project(place.path());
    let mut dev = DevProcess::start(&project);
    let url = dev.wait_for("http://127.0.0.1:").trim().to_owned();
    dev.wait_for("no version is there yet: running task train");
    dev.wait_for("parrot@1 answers at");
    dev.wait_for("waiting for a source");
    let ask = || {
        let inputs = json!({ "x": [1, 2, 3, 4] });
        let mut answer = ureq::post(format!("{url}/models/parrot/predict")).send_json(inputs).unwrap();
        let version = answer.headers()["x-saggar-model"].to_str().unwrap().to_owned();
        let body: Value = serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
        (version, body["y"].clone())
    };
    assert_eq!(ask(), ("parrot@1".to_owned(), json!([1.0, 2.0, 3.0, 4.0])));

    let source = project.join("src/lib.rs");
    let whole = std::fs::read_to_string(&source).unwrap();
    let doubled = whole.replace("inputs.get(\"x\")?.identity()?", "inputs.get(\"x\")?.mul_scalar(2.0)?");
    assert_ne!(whole, doubled);
    std::fs::write(&source, &doubled).unwrap();
    let line = dev.wait_for("edit to first new answer");
    assert!(line.starts_with("parrot@2 answers: edit to first new answer "), "{line}");
    assert_eq!(ask(), ("parrot@2".to_owned(), json!([2.0, 4.0, 6.0, 8.0])));

    std::fs::write(&source, doubled.replace("pub struct Echo", "pub struct Ecoh")).unwrap();
    dev.wait_for("error[E");
    dev.wait_for("parrot keeps serving its previous version");
    assert_eq!(ask().0, "parrot@2");

    std::fs::write(&source, whole.replace("identity()?", "mul_scalar(3.0)?")).unwrap();
    dev.wait_for("parrot@3 answers: edit to first new answer");
    assert_eq!(ask(), ("parrot@3".to_owned(), json!([3.0, 6.0, 9.0, 12.0])));

    let server = child_processes(dev.child.id());
    assert_eq!(server.len(), 1, "only the server runs");
    assert_eq!(dev.stop("-INT"), Some(130));
    assert!(!is_running(server[0]), "the server is left behind");
}

/// Writes a project with this build command for its plugin, and this task.
fn project_with_build_command(place: &Path, command: &str, task: &str) {
    let text = format!(
        "manifest = 1\n[project]\nname = \"p\"\n[plugin.a]\nsource = \"a.wasm\"\n[plugin.a.build]\ncommand = \"{command}\"\n\
         [task.t]\nplugin = \"a\"\n{task}"
    );
    std::fs::write(place.join("saggar.toml"), text).unwrap();
}

#[test]
fn a_running_server_is_reused_and_an_address_in_use_is_reported_before_the_build() {
    let place = tempfile::tempdir().unwrap();
    project_with_build_command(place.path(), "false", "");
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    std::thread::spawn(move || other.incoming().for_each(drop));
    let mut dev = DevProcess::start_at(place.path(), &address);
    dev.wait_for(&format!("another program listens on {address}"));
    assert_eq!(dev.child.wait().unwrap().code(), Some(5));
    assert!(!dev.printed.iter().any(|line| line.contains("exit status")), "it was built first: {:?}", dev.printed);

    let (_home, server) = ServerProcess::start_in_temp_dir();
    let mut dev = DevProcess::start_at(place.path(), server.url().strip_prefix("http://").unwrap());
    dev.wait_for("working with it");
    dev.wait_for("waiting for a source");
    assert!(child_processes(dev.child.id()).is_empty(), "it starts no server");
}

#[test]
fn a_training_without_its_dataset_starts_when_the_dataset_is_pushed() {
    let place = tempfile::tempdir().unwrap();
    project_with_build_command(place.path(), "true", "data = [\"digits\"]\nargs = { epochs = 1, model = \"late\" }\n");
    std::fs::copy(lenet(), place.path().join("a.wasm")).unwrap();
    let mut dev = DevProcess::start(place.path());
    let url = dev.wait_for("http://127.0.0.1:").trim().to_owned();
    dev.wait_for("no dataset digits");
    dev.wait_for(&format!("`saggar --host {url} data push FOLDER --name NAME` stores one"));
    dev.wait_for("waiting for the data");
    let push = ["--host", &url, "data", "push", "examples/digits", "--name", "digits"];
    assert!(Command::new(binary()).args(push).current_dir(root()).status().unwrap().success());
    dev.wait_for("late@1 answers at");
    assert_eq!(dev.stop("-INT"), Some(130));
}

#[test]
fn the_server_stops_when_the_dev_command_is_killed() {
    let place = tempfile::tempdir().unwrap();
    project_with_build_command(place.path(), "false", "");
    // A server in the user's configuration is for other commands: only --host and SAGGAR_HOST make this one use another
    // server than its own.
    std::fs::create_dir_all(place.path().join("config/saggar")).unwrap();
    std::fs::write(place.path().join("config/saggar/config.toml"), "host = \"http://127.0.0.1:1\"\n").unwrap();
    let mut dev = DevProcess::start(place.path());
    dev.wait_for("exit status: 1");
    dev.wait_for("waiting for a source");
    let server = child_processes(dev.child.id());
    assert_eq!(server.len(), 1);
    assert_eq!(dev.stop("-KILL"), None);
    let until = Instant::now() + DEV_WAIT_TIMEOUT;
    while is_running(server[0]) {
        assert!(Instant::now() < until, "the server goes on without anybody");
        std::thread::sleep(Duration::from_millis(20));
    }
}
