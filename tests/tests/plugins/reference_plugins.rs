//! The reference plugins inside the program: listed, shown, run and imported with by name, from a copy of the program
//! alone.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::{Command, Output};

use saggar_store::digest::Digest;
use saggar_tests::onnx::small_model::{external_model, external_weights};
use saggar_tests::{HttpPayload, ServerProcess, binary, plugin};
use serde_json::{Value, json};

const NAMES: [&str; 7] = ["lenet", "mlp", "tabular", "char-lm", "transformer", "input-opt", "onnx"];

/// Runs the program in `directory`, without a server.
fn saggar_in(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(arguments).current_dir(directory).env("SAGGAR_HOST", "http://127.0.0.1:1").output().unwrap()
}

#[test]
fn the_program_contains_the_components_that_a_build_makes() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let listed: Value = serde_json::from_str(&server.saggar_ok(&["plugins", "ls", "--json"])).unwrap();
    for name in NAMES {
        let built = Digest::of(&std::fs::read(plugin(name)).unwrap()).hex();
        let is_it = |listed: &&Value| listed["declares"]["name"] == name;
        let listed = listed.as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("{name}: {listed}"));
        assert_eq!(listed["digest"], built, "{name}");
        assert_eq!(listed["reference"], true, "{name}");
        assert_eq!(
            (&listed["trains"], &listed["predicts"]),
            (&json!(name != "onnx"), &json!(name != "input-opt")),
            "{name}"
        );
    }
    // Uploading one changes what is known of it, and not how often it is listed.
    server.upload(&plugin("lenet"));
    let again = server.get("/api/v1/plugins");
    let again = again["plugins"].as_array().unwrap();
    assert_eq!(again.len(), NAMES.len(), "{again:?}");
}

#[test]
fn a_plugin_is_shown_with_its_parameters_without_a_server() {
    let empty = tempfile::tempdir().unwrap();
    let answer = saggar_in(empty.path(), &["plugins", "show", "lenet"]);
    let text = String::from_utf8(answer.stdout).unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let digest = Digest::of(&std::fs::read(plugin("lenet")).unwrap()).hex();
    assert!(text.contains(&digest), "{text}");
    assert!(text.contains("epochs") && text.contains("Passes over the dataset.") && text.contains("20"), "{text}");
    assert!(text.contains("Reads at /data: image, label"), "{text}");
    let file = plugin("mlp");
    let answer = saggar_in(empty.path(), &["plugins", "show", file.to_str().unwrap(), "--json"]);
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!((&answer["declares"]["name"], &answer["reference"]), (&json!("mlp"), &json!(true)));
    std::fs::write(empty.path().join("text.wasm"), "no component").unwrap();
    let refused = saggar_in(empty.path(), &["plugins", "show", "text.wasm"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("text.wasm"), "{text}");
    let unknown = saggar_in(empty.path(), &["run", "lenett", "--data", "digits"]);
    let text = String::from_utf8_lossy(&unknown.stderr);
    assert!(unknown.status.code() == Some(3) && text.contains("one of lenet, mlp"), "{text}");
}

#[test]
fn a_job_names_a_reference_plugin_and_a_file_of_that_name_wins() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let spec = json!({ "project": "named", "plugin": "mlp", "data": [{ "dataset": "digits", "mount": "/data" }],
        "parameters": { "epochs": 1, "model": "named" }, "device": "cpu" });
    let submitted = server.request("POST", "/api/v1/jobs", HttpPayload::Json(&spec));
    assert_eq!(submitted.status, 201, "{}", submitted.text);
    let digest = Digest::of(&std::fs::read(plugin("mlp")).unwrap()).hex();
    assert_eq!(submitted.json()["spec"]["plugin"], digest);
    let ended = server.wait_for_job(submitted.json()["name"].as_str().unwrap());
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    let unknown = json!({ "project": "named", "plugin": "mlpp" });
    let refused = server.request("POST", "/api/v1/jobs", HttpPayload::Json(&unknown));
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(refused.text.contains("mlpp"), "{}", refused.text);
    // onnx is a reference plugin that does not train.
    let refused =
        server.request("POST", "/api/v1/jobs", HttpPayload::Json(&json!({ "project": "p", "plugin": "onnx" })));
    assert!(refused.status == 422 && refused.text.contains("train"), "{}", refused.text);
    // A version can be pushed with its code. Here the configuration is missing that its training publishes.
    let pushed = server.saggar(&["models", "push", "pushed", "mlp"]);
    let text = String::from_utf8_lossy(&pushed.stderr);
    assert!(!pushed.status.success() && text.contains("parameter `image` is missing"), "{text}");
    std::fs::write(home.path().join("lenet"), "a file of this name").unwrap();
    let mut run = server.command(&["run", "lenet", "--data", "digits"]);
    let ran = run.current_dir(home.path()).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success() && text.contains("component"), "{text}");
}

#[test]
fn a_task_of_the_project_file_names_a_reference_plugin() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let file = "manifest = 1\n[project]\nname = \"short\"\n[plugin.net]\nsource = \"mlp\"\n[task.train]\nplugin = \"net\"\n\
                args = { epochs = 1 }\ndata = [{ from = \"digits\", to = \"/data\" }]\n";
    std::fs::write(home.path().join("saggar.toml"), file).unwrap();
    let run = server.command(&["run", "--task", "train", "--wait"]).current_dir(home.path()).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let help = server.command(&["run", "--task", "train", "--help"]).current_dir(home.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&help.stdout).contains("Passes over the dataset."), "{help:?}");
}

#[test]
fn a_copy_of_the_program_alone_imports_onnx_files() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("saggar");
    std::fs::hard_link(binary(), &program).or_else(|_| std::fs::copy(binary(), &program).map(drop)).unwrap();
    let mut serve = Command::new(&program);
    serve.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--home"]).arg(directory.path().join("home"));
    let server = ServerProcess::from_command(serve, directory.path());
    std::fs::write(directory.path().join("sums.onnx"), external_model("sums.onnx.data", 4)).unwrap();
    std::fs::write(directory.path().join("sums.onnx.data"), external_weights(4)).unwrap();
    server.saggar_ok(&["import", directory.path().join("sums.onnx").to_str().unwrap()]);
    let answer = server.request("POST", "/models/sums/predict", HttpPayload::Json(&json!({ "x": [1, 1] })));
    assert_eq!((answer.status, &answer.json()["y"]), (200, &json!([4.0, 6.0])), "{}", answer.text);
}

#[test]
fn an_importer_that_cannot_be_read_is_named_in_the_error() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--onnx-plugin", "no-such.wasm"]);
    let payload = HttpPayload::Bytes("application/octet-stream", b"model");
    let refused = server.request("POST", "/api/v1/models/sums/import", payload);
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("no_importer")), "{}", refused.text);
    assert!(refused.text.contains("--onnx-plugin"), "{}", refused.text);
}
