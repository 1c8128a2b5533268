//! The project file through the real binary: validating it, running its tasks, developing its plugin.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert, and it says SKIP")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use saggar_tests::{ServerProcess, binary, lenet};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A project's directory, in which commands run with a clean environment.
struct TestProject(TempDir);

impl TestProject {
    /// Creates a project with this file, and the reference plugin beside it.
    fn new(manifest: &str) -> TestProject {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("saggar.toml"), manifest).unwrap();
        std::fs::copy(lenet(), place.path().join("lenet.wasm")).unwrap();
        TestProject(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        for name in ["SAGGAR_HOST", "SAGGAR_PROJECT", "SAGGAR_DEVICE", "SAGGAR_HOME", "SAGGAR_JSON", "SAGGAR_API_KEY"] {
            command.env_remove(name);
        }
        command.args(arguments).current_dir(self.0.path()).env("XDG_CONFIG_HOME", self.path("config"));
        command.stdin(std::process::Stdio::null());
        command
    }

    fn saggar(&self, server: Option<&ServerProcess>, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        if let Some(server) = server {
            command.env("SAGGAR_HOST", server.url());
        }
        command.output().unwrap()
    }

    /// Runs a command against a server, expects success, and returns its output.
    fn saggar_ok(&self, server: &ServerProcess, arguments: &[&str]) -> String {
        let output = self.saggar(Some(server), arguments);
        assert!(output.status.success(), "saggar {arguments:?}: {}", stderr_text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn spec(&self, server: &ServerProcess, job: &str) -> Value {
        serde_json::from_str(&self.saggar_ok(server, &["status", job, "--field", "spec"])).unwrap()
    }
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn server_with_digits(home: &Path) -> ServerProcess {
    let server = ServerProcess::start(home);
    server.push_digits();
    server
}

const MANIFEST: &str = r#"
manifest = 1
[project]
name = "mnist"
[project.defaults]
seed = 7
[plugin.lenet]
source = "lenet.wasm"
[task.train]
plugin = "lenet"
args = { epochs = 1, lr = 0.01 }
data = [{ from = "digits/1", to = "/data" }]
message = "as ever"
device = "cpu"
memory = "2GiB"
gpu_memory = "1GiB"
queue = "default"
priority = 60
preemptible = true
retry = 2
retry_on = ["preempted", "device-lost"]
max_runtime = "1h"
max_attempt_runtime = "20m"
auto_extend = 1
checkpoint = { every = "100steps", keep_last = 2, keep_best = "validation/accuracy" }
experiment = "nightly"
"#;

const SPELLED_OUT: [&str; 39] = [
    "run",
    "lenet.wasm",
    "--project",
    "mnist",
    "--data",
    "digits/1:/data",
    "-m",
    "as ever",
    "--device",
    "cpu",
    "--seed",
    "7",
    "--memory",
    "2GiB",
    "--gpu-memory",
    "1GiB",
    "--queue",
    "default",
    "--priority",
    "60",
    "--preemptible",
    "--retry",
    "2",
    "--retry-on",
    "preempted,device-lost",
    "--max-runtime",
    "1h",
    "--max-attempt-runtime",
    "20m",
    "--auto-extend",
    "--checkpoint-every",
    "100steps",
    "--checkpoint-keep",
    "2",
    "--keep-best",
    "validation/accuracy",
    "-e",
    "nightly",
    "--",
];

#[test]
fn a_task_equals_the_spelled_out_command() {
    let home = tempfile::tempdir().unwrap();
    let server = server_with_digits(home.path());
    let project = TestProject::new(MANIFEST);
    let task = project.saggar_ok(&server, &["run", "--task", "train"]);
    // Without a project file, the command line contains everything.
    std::fs::remove_file(project.path("saggar.toml")).unwrap();
    let spelled = project.saggar_ok(&server, &[&SPELLED_OUT[..], &["epochs=1", "lr=0.01"]].concat());
    assert_eq!((task.trim(), spelled.trim()), ("mnist-1", "mnist-2"));
    let (task, spelled) = (project.spec(&server, "mnist-1"), project.spec(&server, "mnist-2"));
    assert_eq!(task, spelled);
    assert_eq!((&task["seed"], &task["priority"], &task["experiment"]), (&json!(7), &json!(60), &json!("nightly")));
    assert_eq!(task["checkpoint_keep_best"], json!({ "metric": "validation/accuracy", "mode": "max" }));
}

#[test]
fn a_job_specification_round_trips() {
    let home = tempfile::tempdir().unwrap();
    let server = server_with_digits(home.path());
    let project = TestProject::new(MANIFEST);
    project.saggar_ok(&server, &["run", "--task", "train"]);
    let first = project.saggar_ok(&server, &["status", "1", "--field", "spec"]);
    std::fs::write(project.path("job.json"), &first).unwrap();
    assert_eq!(project.saggar_ok(&server, &["run", "--from-file", "job.json"]).trim(), "mnist-2");
    assert_eq!(project.saggar_ok(&server, &["status", "2", "--field", "spec"]), first);
    // Flags override the file, but only those that are given.
    project.saggar_ok(&server, &["run", "--from-file", "job.json", "--priority", "3", "--", "epochs=2"]);
    let mut expected: Value = serde_json::from_str(&first).unwrap();
    expected["priority"] = json!(3);
    expected["parameters"]["epochs"] = json!(2);
    assert_eq!(project.spec(&server, "3"), expected);

    std::fs::write(project.path("bad.json"), "{\n  \"project\": \"p\",\n  \"colour\": 3\n}").unwrap();
    let refused = project.saggar(Some(&server), &["run", "--from-file", "bad.json"]);
    assert_eq!(refused.status.code(), Some(7));
    assert!(stderr_text(&refused).contains("bad.json:3:10: unknown field `colour`"), "{}", stderr_text(&refused));
    let missing = project.saggar(Some(&server), &["run", "--from-file", "none.json"]);
    assert_eq!(missing.status.code(), Some(3));
}

#[test]
fn a_task_of_the_project_file_is_scheduled() {
    let home = tempfile::tempdir().unwrap();
    let server = server_with_digits(home.path());
    let project = TestProject::new(MANIFEST);
    let none = project.saggar(Some(&server), &["schedule", "apply"]);
    assert_eq!(none.status.code(), Some(7));
    std::fs::write(project.path("saggar.toml"), format!("{MANIFEST}schedule = \"15 23 29 2 *\"\n")).unwrap();
    let set: Value = serde_json::from_str(&project.saggar_ok(&server, &["schedule", "apply", "--json"])).unwrap();
    assert_eq!((&set[0]["name"], &set[0]["cron"]), (&json!("mnist-train"), &json!("15 23 29 2 *")));
    project.saggar_ok(&server, &["run", "--task", "train"]);
    assert_eq!(set[0]["spec"], project.spec(&server, "1"), "the schedule's jobs are the task's");
    assert!(project.saggar_ok(&server, &["schedule", "ls"]).contains("-02-29T23:15"));
}

#[test]
fn a_number_names_a_job_of_the_project() {
    let home = tempfile::tempdir().unwrap();
    let server = server_with_digits(home.path());
    let project = TestProject::new(MANIFEST);
    project.saggar_ok(&server, &["run", "--task", "train", "--wait"]);
    for name in ["1", "mnist/1", "me/projects/mnist/1", "mnist-1"] {
        assert_eq!(project.saggar_ok(&server, &["status", name, "--field", "name"]), "mnist-1\n", "{name}");
    }
    assert!(project.saggar_ok(&server, &["logs", "1"]).contains("epoch"));
    std::fs::create_dir(project.path("deep")).unwrap();
    let deeper = project
        .command(&["status", "1", "--field", "name"])
        .current_dir(project.path("deep"))
        .env("SAGGAR_HOST", server.url())
        .output();
    assert_eq!(String::from_utf8_lossy(&deeper.unwrap().stdout), "mnist-1\n");
    let elsewhere = server.saggar(&["status", "1"]);
    assert_eq!(elsewhere.status.code(), Some(3), "no project is here");
}

#[test]
fn every_mistake_in_the_project_file_is_reported_with_its_location() {
    let bad = "manifest = 1\n[project]\nname = \"p\"\n[plugin.a]\nsource = \"a.wasm\"\n[task.t]\nplugin = \"b\"\n\
               priorty = 3\nmax_runtime = \"90\"\nmemory = \"0GiB\"\nschedule = \"15 25 * * *\"\n\
               [[pipeline.p.step]]\nname = \"x\"\n";
    let project = TestProject::new(bad);
    let refused = project.saggar(None, &["check"]);
    assert_eq!(refused.status.code(), Some(7));
    let said = stderr_text(&refused);
    for (place, words) in [
        ("saggar.toml:7:10: ", "no plugin is called \"b\""),
        ("saggar.toml:8:1: ", "unknown key \"priorty\""),
        ("saggar.toml:9:15: ", "expected a time above 0 with its unit"),
        ("saggar.toml:10:10: ", "expected a size above 0 with its unit"),
        ("saggar.toml:11:16: ", "hour \"25\""),
        ("saggar.toml:12:1: ", "has neither a task nor a kind"),
    ] {
        let line = said.lines().find(|line| line.starts_with(place)).unwrap_or_else(|| panic!("{place} in {said}"));
        assert!(line.contains(words), "{line}");
    }
    assert_eq!(said.matches("  hint: ").count(), 6, "{said}");
    assert!(said.contains("did you mean \"priority\"?"));
    let json = project.saggar(None, &["check", "--json"]);
    assert_eq!(json.status.code(), Some(7));
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((json["valid"].as_bool(), json["mistakes"].as_array().unwrap().len()), (Some(false), 6));
    // Nothing is sent if the file is not valid.
    let run = project.saggar(None, &["run", "--task", "t"]);
    assert_eq!(run.status.code(), Some(7));
    assert!(stderr_text(&run).contains("\nsaggar.toml:7:10: "), "{}", stderr_text(&run));
}

#[test]
fn a_valid_project_file_passes_the_check_and_bad_arguments_have_their_exit_codes() {
    let project = TestProject::new(MANIFEST);
    let valid = project.saggar(None, &["check"]);
    assert_eq!(valid.status.code(), Some(0), "{}", stderr_text(&valid));
    assert_eq!(String::from_utf8_lossy(&valid.stdout), "saggar.toml is valid: 1 plugin, 1 task\n");
    let code = |arguments: &[&str]| project.saggar(None, arguments).status.code();
    assert_eq!(code(&["check", "other.toml"]), Some(3));
    assert_eq!(code(&["run", "--task", "tarin"]), Some(3));
    assert_eq!(code(&["run", "--task", "train", "--from-file", "x"]), Some(2));
    assert_eq!(code(&["run", "--retry-on", "moon"]), Some(2));
    assert_eq!(code(&["run", "--max-runtime", "90"]), Some(2));
    // Reported before anything is built or sent.
    let nobody = ["--host", "http://127.0.0.1:9"];
    assert_eq!(code(&[&["run", "lenet.wasm", "--data", "mnist/latest"][..], &nobody].concat()), Some(7));
    assert_eq!(code(&[&["run", "lenet.wasm", "--init-from", "mnist"][..], &nobody].concat()), Some(7));
    assert_eq!(code(&[&["run", "lenet.wasm"][..], &nobody].concat()), Some(6));
    let schema = project.saggar(None, &["check", "--schema"]);
    let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
    assert_eq!(schema["title"], "saggar.toml");
    for shell in ["bash", "zsh", "fish"] {
        let script = project.saggar(None, &["completion", shell]);
        assert_eq!(script.status.code(), Some(0));
        let script = String::from_utf8(script.stdout).unwrap();
        assert!(script.contains("from-file") && script.contains("doctor"), "{shell}");
    }
    assert_eq!(code(&["completion", "tcsh"]), Some(2));
    let elsewhere = tempfile::tempdir().unwrap();
    let nowhere = project.command(&["run", "--task", "train"]).current_dir(elsewhere.path()).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(3));
    assert!(stderr_text(&nowhere).contains("no saggar.toml here or above"));
}

#[test]
fn the_most_specific_configuration_source_wins() {
    let project = TestProject::new(MANIFEST);
    let ls = |arguments: &[&str], device: Option<&str>| {
        let mut command = project.command(&[&["config", "ls", "--json"], arguments].concat());
        device.map(|device| command.env("SAGGAR_DEVICE", device));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr_text(&output));
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        move |key: &str| {
            let row = rows.as_array().unwrap().iter().find(|row| row["key"] == key).unwrap();
            (row["value"].clone(), row["source"].as_str().unwrap().to_owned())
        }
    };
    let is = |value: Value, source: &str| (value, source.to_owned());
    let said = ls(&["--task", "train", "--retry", "9"], Some("vulkan:3"));
    assert_eq!(said("retry"), is(json!(9), "flag"));
    assert_eq!(said("device"), is(json!("vulkan:3"), "environment SAGGAR_DEVICE"));
    assert_eq!(said("priority"), is(json!(60), "[task.train]"));
    assert_eq!(said("seed"), is(json!(7), "[project.defaults]"));
    assert_eq!(said("replicas").1, "built-in");
    assert_eq!(said("project"), is(json!("mnist"), "saggar.toml"));
    assert_eq!(said("host"), is(json!("http://127.0.0.1:5000"), "built-in"));
    let said = ls(&["--device", "cpu"], Some("vulkan:3"));
    assert_eq!(said("device"), is(json!("cpu"), "flag"));
    assert_eq!(said("priority"), is(json!(50), "built-in"));

    std::fs::create_dir_all(project.path("config/saggar")).unwrap();
    std::fs::write(project.path("config/saggar/config.toml"), "host = \"http://box:1\"\ndevice = \"vulkan:9\"\n")
        .unwrap();
    let said = ls(&[], None);
    assert_eq!(said("host"), is(json!("http://box:1"), "user configuration"));
    assert_eq!(said("device"), is(json!("vulkan:9"), "user configuration"));
    // Relative paths of certificates are relative to the file that names them, and remain in effect if another address
    // is given.
    std::fs::write(project.path("config/saggar/config.toml"), "host = \"http://box:1\"\nca = \"ca.pem\"\n").unwrap();
    let said = ls(&["--host", "https://other:2"], None);
    assert_eq!(said("host"), is(json!("https://other:2"), "flag"));
    assert_eq!(said("ca"), is(json!(project.path("config/saggar/ca.pem")), "user configuration"));
    std::fs::write(project.path("config/saggar/config.toml"), "hots = 1\n").unwrap();
    let refused = project.saggar(None, &["config", "ls"]);
    assert_eq!(refused.status.code(), Some(7));
    assert!(stderr_text(&refused).contains("config.toml:1:1: unknown key \"hots\""), "{}", stderr_text(&refused));
}

#[test]
fn doctor_lists_the_features_of_each_adapter() {
    let project = TestProject::new(MANIFEST);
    let output = project.command(&["doctor", "--json"]).env("SAGGAR_ADDR", "127.0.0.1:0").output().unwrap();
    let findings: Vec<Value> =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr_text(&output)));
    let is_adapter = |finding: &&Value| finding["name"].as_str().unwrap().starts_with("vulkan:");
    let adapters: Vec<&Value> = findings.iter().filter(is_adapter).collect();
    if adapters.is_empty() {
        println!("SKIP: no GPU adapter");
    }
    for adapter in adapters {
        let details = adapter["details"].as_str().unwrap_or_else(|| panic!("{adapter}"));
        for limit in ["buffer_bytes_max ", "bindings_max ", "workgroup_bytes_max "] {
            assert!(details.contains(limit), "{details}");
        }
    }
}

#[test]
fn doctor_explains_problems_and_their_fixes() {
    let project = TestProject::new(MANIFEST);
    let doctor = |arguments: &[&str]| {
        let mut command = project.command(&[&["doctor", "--json"], arguments].concat());
        let output = command.env("SAGGAR_ADDR", "127.0.0.1:0").output().unwrap();
        let findings: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr_text(&output)));
        let state = move |name: &str| {
            let found = findings.as_array().unwrap().iter().find(|finding| finding["name"] == name);
            found.unwrap_or_else(|| panic!("nothing is said of {name}"))["state"].as_str().unwrap().to_owned()
        };
        (output.status.code(), state)
    };
    let (code, state) = doctor(&[]);
    assert_eq!(code, Some(0));
    assert_eq!([state("cpu"), state("auto"), state("port"), state("project")], ["OK"; 4].map(str::to_owned));
    assert_eq!([state("state"), state("config")], ["none"; 2].map(str::to_owned));
    let (_, state) = doctor(&["--fix"]);
    assert_eq!([state("state"), state("config")], ["FIXED"; 2].map(str::to_owned));
    assert!(project.path(".saggar").is_dir() && project.path("config/saggar/config.toml").is_file());
    std::fs::write(project.path("saggar.toml"), "manifest = 1\n").unwrap();
    let (code, state) = doctor(&[]);
    assert_eq!((code, state("project").as_str(), state("state").as_str()), (Some(7), "FAILED", "OK"));
    assert_eq!(doctor(&["--device", "vulkan:77"]).0, Some(8));
}

#[test]
fn a_server_applies_the_model_settings_of_the_project_file() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("saggar.toml");
    let project = "manifest = 1\n[project]\nname = \"digits\"\n[quota]\nstorage = \"64MiB\"\n\
                   [model.digits]\nweights = \"models/digits\"\ndefault = true\ninstances = { min = 1, max = 1 }\n\
                   batch = { max_items = 2, max_delay = \"1ms\" }\nqueue = { capacity = 7, timeout = \"2s\" }\n";
    std::fs::write(&file, project).unwrap();
    let home = place.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let server = ServerProcess::start_with_digits(&home, &["--config", file.to_str().unwrap()]);
    assert!(place.path().join("models/digits/1/manifest.json").is_file(), "its versions lie where the file says");
    let config = server.get("/api/v1/models/digits/config");
    let said = json!({ "max_items": 2, "max_delay": "1ms" });
    assert_eq!(
        (&config["batch"], &config["pin"], &config["keep_alive"]),
        (&said, &json!(true), &json!("forever")),
        "{config}"
    );
    assert_eq!((&config["queue"]["capacity"], &config["instances"]["max"]), (&json!(7), &json!(1)), "{config}");
    assert_eq!(server.get("/api/v1/quota")["storage_quota_bytes"], 64 << 20);
    // A model's own file overrides the project's settings as a whole.
    std::fs::write(place.path().join("models/digits/model.json"), r#"{"queue": {"capacity": 9}}"#).unwrap();
    server.wait_for("the model's own settings", |server| {
        let config = server.get("/api/v1/models/digits/config");
        (config["queue"]["capacity"] == 9 && config["pin"].is_null()).then_some(())
    });
    drop(server);
    std::fs::write(&file, project.replace("models/digits", "models/other")).unwrap();
    let mut serve = Command::new(binary());
    serve.args(["serve", "--addr", "127.0.0.1:0", "--home"]).arg(&home).arg("--config").arg(&file);
    let refused = serve.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(7) && said.contains("[model.digits]: weights"), "{said}");
}
