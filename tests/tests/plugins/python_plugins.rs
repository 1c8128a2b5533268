//! Plugins in Python: built from the template, trained, served, and everything that they cannot do.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert, and it says SKIP")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use saggar_tests::{
    HttpPayload, ServerProcess, binary, build_plugin, check_declared_input_of_mlp, check_logged_items_of_mlp, plugin,
    root,
};
use serde_json::json;

/// Exit code of a build that failed.
const BUILD_FAILED: i32 = 7;
/// Memory that a server can hold after it has unloaded a plugin, beyond what it held before, in KiB.
const RESIDUAL_KIB_MAX: u64 = 20 << 10;
/// Time to load a plugin from the artifact cache, in seconds: half a second in a debug build, with room for other tests
/// beside this one. Compiling it takes ten to thirty times as long.
const CACHED_START_SECONDS_MAX: f64 = 3.0;

/// Returns a copy of a plugin of the tests, built, or prints SKIP and returns `None` without Python or componentize-py.
fn build_guest(place: &Path, name: &str) -> Option<PathBuf> {
    let copied = Command::new("cp").arg("-r").arg(root().join("tests/guests-python").join(name)).arg(place).status();
    assert!(copied.unwrap().success());
    build_plugin(&place.join(name))
}

/// Runs the training of the hostile plugin. Returns the job and its log.
fn act(server: &ServerProcess, plugin: &Path, act: &str, arguments: &[&str]) -> (serde_json::Value, String) {
    let run = ["run", plugin.to_str().unwrap(), "--device", "cpu"];
    let job = server.saggar_ok(&[&run[..], arguments, &["--", &format!("act={act}")]].concat());
    let ended = server.wait_for_job(job.trim());
    (ended, server.saggar_ok(&["logs", job.trim()]))
}

#[test]
fn the_template_trains_serves_and_resumes_like_a_plugin_in_rust() {
    let home = tempfile::tempdir().unwrap();
    let place = tempfile::tempdir().unwrap();
    let written = Command::new(binary()).args(["init", "mine", "--template", "python"]).current_dir(&place).output();
    assert!(written.unwrap().status.success());
    let plugin = place.path().join("mine");
    let Some(component) = build_plugin(&plugin) else { return };
    let before = std::fs::read(&component).unwrap();
    build_plugin(&plugin).unwrap();
    assert_eq!(std::fs::read(&component).unwrap(), before, "a build of the same sources keeps the component");

    let server = ServerProcess::start(home.path());
    server.push_digits();
    let wasm = component.to_str().unwrap();
    let job = server.saggar_ok(&["run", wasm, "--data", "digits", "--device", "cpu", "--seed", "1"]);
    let ended = server.wait_for_job(job.trim());
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    let accuracy = ended["metrics"]["validation/accuracy"].as_f64().unwrap();
    assert!(accuracy >= 0.97, "{accuracy}");
    server.wait_for_version("mine", 1);
    let predict = ["predict", "mine", "-i", "image=@examples/digits/held-out/7.png", "--json"];
    assert!(server.saggar_ok(&predict).contains("\"label\": 7"));
    let log = server.saggar_ok(&["logs", job.trim()]);
    assert!(log.contains("published version 1 of mine") && log.contains("validation/accuracy"), "{log}");

    let test =
        ["plugins", "test", wasm, "--data", "digits", "--preemptions", "1", "--device", "cpu", "--", "epochs=120"];
    let tested = server.saggar(&test);
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
}

#[test]
fn the_same_network_gets_the_same_bits_from_python_and_from_rust() {
    let place = tempfile::tempdir().unwrap();
    let Some(python) = build_guest(place.path(), "mlp") else { return };
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.push_digits();
    for (model, component) in [("rust", plugin("mlp")), ("python", python.clone())] {
        let run = ["run", component.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", "5", "--"];
        let model = format!("model={model}");
        let job = server.saggar_ok(&[&run[..], &["epochs=3", "unit=64", &model]].concat());
        assert_eq!(server.wait_for_job(job.trim())["state"], "SUCCEEDED");
    }
    assert_eq!(server.weights_digest("python"), server.weights_digest("rust"));
    check_logged_items_of_mlp(&server, &python);
    check_declared_input_of_mlp(&server, &python);
    for optimizer in ["adam", "sgd", "muon"] {
        let test = ["plugins", "test", python.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--"];
        let parameters = ["epochs=200", "unit=128", "everything=true", &format!("optimizer={optimizer}")];
        let tested = server.saggar(&[&test[..], &parameters].concat());
        assert!(tested.status.success(), "{optimizer}: {}", String::from_utf8_lossy(&tested.stderr));
    }
}

#[test]
fn a_mistake_in_a_python_plugin_is_reported_when_it_is_built() {
    let place = tempfile::tempdir().unwrap();
    let plugin = place.path().join("mistaken");
    std::fs::create_dir_all(plugin.join("src")).unwrap();
    std::fs::write(plugin.join("pyproject.toml"), "[project]\nname = \"mistaken\"\n").unwrap();
    let mistakes = [
        ("def f(:\n", "SyntaxError", "File \"src/plugin.py\", line 1"),
        ("import numpy\n", "No module named 'numpy'", "File \"src/plugin.py\", line 1"),
        (
            "import saggar_plugin\n",
            "the plugin must call `saggar_plugin.export(train=...)`",
            "world = \"predict-plugin\"",
        ),
    ];
    for (source, reason, place) in mistakes {
        std::fs::write(plugin.join("src/plugin.py"), source).unwrap();
        let built = Command::new(binary()).arg("build").arg(&plugin).output().unwrap();
        let messages = String::from_utf8_lossy(&built.stderr).into_owned();
        if messages.contains("is needed to build this plugin") {
            return println!("SKIP: {messages}");
        }
        assert_eq!(built.status.code(), Some(BUILD_FAILED), "{messages}");
        assert!(messages.contains(reason) && messages.contains(place), "{source}: {messages}");
        assert!(!messages.contains("anyhow") && !messages.contains("tokio"), "{messages}");
    }
}

#[test]
fn a_missing_python_is_an_error_with_a_hint() {
    let place = tempfile::tempdir().unwrap();
    let written = Command::new(binary()).args(["init", "mine", "--template", "python"]).current_dir(&place).output();
    assert!(written.unwrap().status.success());
    let mut build = Command::new(binary());
    build.arg("build").arg(place.path().join("mine"));
    build.env("XDG_CACHE_HOME", place.path()).env("SAGGAR_PYTHON", "no-python-of-this-name");
    let built = build.output().unwrap();
    let messages = String::from_utf8_lossy(&built.stderr).into_owned();
    assert_eq!(built.status.code(), Some(BUILD_FAILED), "{messages}");
    assert!(
        messages.contains("Python 3.10 or newer") && messages.contains("apt install python3 python3-venv"),
        "{messages}"
    );
    assert!(messages.contains("no-python-of-this-name"), "{messages}");
}

/// One test for all of this, because a server compiles the plugin for half a minute in a debug build.
#[test]
fn a_hostile_python_plugin_is_confined_and_its_errors_are_reported() {
    let place = tempfile::tempdir().unwrap();
    let Some(plugin) = build_guest(place.path(), "hostile") else { return };
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    check_nothing_of_the_machine_is_visible(&server, &plugin);
    check_output_and_exceptions(&server, &plugin);
    check_hostile_trainings(&server, &plugin);
    check_hostile_predictions(&server, &plugin);
    drop(server);
    check_start_and_memory(home.path());
}

fn check_nothing_of_the_machine_is_visible(server: &ServerProcess, plugin: &Path) {
    let report = |seed: &str| {
        let (ended, log) = act(server, plugin, "report", &["--seed", seed]);
        assert_eq!(ended["state"], "SUCCEEDED", "{ended}\n{log}");
        log
    };
    let log = report("1");
    let answer = |name: &str| {
        let mut lines = log.lines().filter_map(|line| line.split_once(&format!("{name}: ")));
        lines.next().unwrap_or_else(|| panic!("{name} is missing in {log}")).1.to_owned()
    };
    for refused in ["open", "write", "list", "socket", "udp", "name"] {
        assert!(!answer(refused).starts_with("returned"), "{refused}: {}", answer(refused));
    }
    assert!(answer("thread").starts_with("RuntimeError"), "{}", answer("thread"));
    assert!(answer("ctypes").starts_with("ModuleNotFoundError"), "{}", answer("ctypes"));
    assert!(answer("json.tool").starts_with("ModuleNotFoundError"), "{}", answer("json.tool"));
    assert_eq!(answer("environ"), "returned None");
    assert_eq!(answer("argv"), "returned []");
    assert_eq!(answer("time"), "returned 946684800.0");
    assert_eq!(answer("monotonic"), "returned True");
    assert_eq!(answer("sleep"), "returned None");
    assert_eq!(answer("now"), "returned '2000-01-01T00:00:00+00:00'");
    let values = |log: &str| {
        let names = ["random: ", "urandom: ", "uuid: "];
        names.map(|name| log.lines().find_map(|line| line.split_once(name)).unwrap().1.to_owned())
    };
    assert_eq!(values(&report("1")), values(&log), "random numbers depend on the seed alone");
    for (one, other) in values(&report("2")).iter().zip(values(&log)) {
        assert_ne!(*one, other, "random numbers depend on the seed");
    }
}

fn check_output_and_exceptions(server: &ServerProcess, plugin: &Path) {
    let (ended, log) = act(server, plugin, "output", &[]);
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    for line in ["a line of standard output", "unfinished", "UserWarning: a warning", "a line of the log"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    let source = include_str!("../../guests-python/hostile/src/hostile.py");
    let line_of = |act: &str| {
        let at = source.lines().position(|line| line.ends_with(&format!("# act: {act}"))).unwrap();
        format!("src/hostile.py:{}", at + 1)
    };
    for (what, reason) in [
        ("raise", "ValueError: no such class: 12"),
        ("layer", "inner dimensions 16 and 20 differ"),
        // Operators that are used before the graph is built and run, or after it was built, name themselves.
        ("unbuilt", "`greater` uint8[2, 16] has no value while the graph is built"),
        ("built", "the graph is already built: `relu` cannot be added to it"),
    ] {
        let (ended, log) = act(server, plugin, what, &[]);
        assert_eq!(ended["state"], "FAILED", "{ended}");
        let message = ended["message"].as_str().unwrap();
        assert!(message.contains(reason) && message.contains(&line_of(what)), "{message}");
        assert!(log.contains("Traceback (most recent call last)") && log.contains(message), "{log}");
    }
    let (ended, _) = act(server, plugin, "layer", &[]);
    assert!(ended["message"].as_str().unwrap().contains("layer `fc1`"), "{ended}");
}

fn check_hostile_trainings(server: &ServerProcess, plugin: &Path) {
    for (what, reasons) in [
        ("recurse", &["RecursionError"][..]),
        ("allocate", &["MemoryError", "needs more memory"]),
        ("nest", &["RecursionError", "stack", "trapped", "out of bounds"]),
        ("exit", &["SystemExit: that was all"]),
        ("os-exit", &["exit"]),
        ("abort", &["trapped"]),
    ] {
        let (ended, log) = act(server, plugin, what, &[]);
        assert_eq!(ended["state"], "FAILED", "{what}: {ended}");
        let message = ended["message"].as_str().unwrap();
        println!("{what}: {message}");
        assert!(reasons.iter().any(|reason| message.contains(reason)), "{what}: {message}\n{log}");
    }
    let (ended, _) = act(server, plugin, "loop", &["--max-runtime", "2s"]);
    assert_eq!(ended["state"], "TIMED_OUT", "{ended}");
}

fn check_hostile_predictions(server: &ServerProcess, plugin: &Path) {
    let (ended, log) = act(server, plugin, "publish", &[]);
    assert_eq!(ended["state"], "SUCCEEDED", "{log}");
    server.wait_for_version("actor", 1);
    let predict = |act: i32| server.request("POST", "/models/actor/predict", HttpPayload::Json(&json!({ "act": act })));
    assert_eq!(predict(0).status, 200);
    // In the order of the plugin's `ACTS`: recurse, allocate, loop, nest, exit, os-exit, abort, raise.
    for act in 1..=8 {
        let began = Instant::now();
        let answer = predict(act);
        println!("act {act}: {} {}", answer.status, answer.text);
        assert!(answer.status >= 400, "{act}: {}", answer.text);
        assert!(began.elapsed() < Duration::from_secs(60), "{act}");
        assert_eq!(predict(0).status, 200, "after act {act}");
    }
}

/// The plugin is in the artifact cache of `home`.
fn check_start_and_memory(home: &Path) {
    let server = ServerProcess::start(home);
    server.wait_for_version("actor", 1);
    let page = server.metrics();
    let phases = page.lines().filter(|line| line.starts_with("saggar_cold_start_seconds_sum{model=\"actor\""));
    let seconds: f64 = phases.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    assert!(seconds > 0.0 && seconds < CACHED_START_SECONDS_MAX, "{seconds} s: {page}");
    let with = resident_kib(&server);
    server.saggar_ok(&["models", "rm", "actor", "--yes"]);
    server.wait_for("the model's removal", |server| {
        let models = server.get("/api/v1/models");
        (!models.to_string().contains("actor")).then_some(())
    });
    let empty_home = tempfile::tempdir().unwrap();
    let before = resident_kib(&ServerProcess::start(empty_home.path()));
    let after = server.wait_for("the model's memory", |server| {
        let after = resident_kib(server);
        (after < before + RESIDUAL_KIB_MAX).then_some(after)
    });
    println!("{before} KiB without a model, {with} KiB with it, {after} KiB after it; loaded in {seconds} s");
}

/// Returns the resident memory of the server.
fn resident_kib(server: &ServerProcess) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
