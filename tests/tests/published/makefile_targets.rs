//! The targets of the Makefile: each has a complete recipe and is listed by `make help`. Those that need no other build
//! than the tests' run here, in a short form.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::{Command, Output};

use saggar_tests::{binary, root};
use serde_json::json;

/// Runs `make` as a person would, without the environment variables of the test run.
fn make(arguments: &[&str], environment: &[(&str, &Path)]) -> Output {
    let mut command = Command::new("make");
    command.args(arguments).current_dir(root());
    for (name, _) in std::env::vars() {
        let is_ours =
            name.starts_with("CARGO_") && !["CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_INCREMENTAL"].contains(&&*name);
        if is_ours || name.starts_with("MAKE") || name.starts_with("NEXTEST") || name == "LD_LIBRARY_PATH" {
            command.env_remove(&name);
        }
    }
    command.envs(environment.iter().copied()).output().unwrap()
}

fn make_ok(arguments: &[&str], environment: &[(&str, &Path)]) -> String {
    let output = make(arguments, environment);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "make {arguments:?}:\n{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn makefile_text() -> String {
    std::fs::read_to_string(root().join("Makefile")).unwrap()
}

#[test]
fn every_make_target_is_complete_and_listed_by_help() {
    let makefile = makefile_text();
    let phony = makefile.lines().find_map(|line| line.strip_prefix(".PHONY: ")).unwrap();
    let help = make_ok(&["help"], &[]);
    for target in phony.split_whitespace() {
        make_ok(&["--dry-run", target], &[("WEBNN_CASES", Path::new("."))]);
        // Parts of `make test`.
        let is_part = ["guests", "lint"].contains(&target);
        let is_told = help.lines().any(|line| line.split_whitespace().nth(1) == Some(target));
        assert!(is_told || is_part, "`make help` says nothing of {target}");
    }
    let defined = makefile.lines().filter_map(|line| line.split_once(':').map(|(name, _)| name));
    for name in defined.filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-')) {
        assert!(phony.split_whitespace().any(|target| target == name), "{name} is not in .PHONY");
    }
}

#[test]
fn conformance_of_webnn_runs_a_folder_of_cases() {
    let folder = tempfile::tempdir().unwrap();
    let tensor = |data: [i32; 2]| json!({ "dtype": "float32", "shape": [2], "data": data });
    let cases = json!({ "op": "relu", "cases": [{
        "op": "relu", "name": "relu of two", "builder": "buildAndExecuteGraph", "inputs": { "x": tensor([-1, 2]) },
        "steps": [{ "op": "relu", "args": [{ "name": "input", "ref": "x" }], "options": {}, "outputs": ["y"] }],
        "expected": { "y": tensor([0, 2]) }, "tolerance": { "metricType": "ULP", "value": 0 },
    }]});
    std::fs::write(folder.path().join("relu.json"), cases.to_string()).unwrap();
    let printed = make_ok(&["conformance-webnn"], &[("WEBNN_CASES", folder.path())]);
    assert!(printed.contains("1 passed, 0 failed, 0 skipped"), "{printed}");
    assert!(!make(&["conformance-webnn"], &[]).status.success(), "without a folder it says so");
}

/// Returns a folder with one of the ONNX project's cases.
fn one_case() -> tempfile::TempDir {
    let listed = Command::new(".ci/onnx-cases").current_dir(root()).output().unwrap();
    let folders = String::from_utf8(listed.stdout).unwrap();
    let from = Path::new(folders.trim().split(':').next().unwrap()).join("node/test_relu");
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("node/test_relu");
    std::fs::create_dir_all(case.join("test_data_set_0")).unwrap();
    for file in ["model.onnx", "test_data_set_0/input_0.pb", "test_data_set_0/output_0.pb"] {
        std::fs::copy(from.join(file), case.join(file)).unwrap();
    }
    folder
}

#[test]
fn conformance_of_onnx_runs_a_folder_of_cases() {
    let folder = one_case();
    let printed = make_ok(&["conformance-onnx"], &[("ONNX_CASES", folder.path())]);
    assert!(printed.contains("1 passed") && printed.contains(" 0 wrong"), "{printed}");
}

#[test]
fn the_rules_of_onnx_run_a_folder_of_cases() {
    let folder = one_case();
    let printed = make_ok(&["conformance-onnx-rules"], &[("ONNX_CASES", folder.path())]);
    assert!(printed.contains("1 passed"), "{printed}");
}

/// The debug binary and the plugins are already built, so these take seconds.
const DEBUG: &str = "PROFILE=debug";

#[test]
fn the_demo_ends_with_a_prediction() {
    // A free port, because the default one can be in use.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let printed = make_ok(&["demo", DEBUG], &[("SAGGAR_ADDR", Path::new(&free))]);
    assert!(printed.contains("Job digits-1 SUCCEEDED") && printed.contains("label  7"), "{printed}");
}

#[test]
fn the_docs_target_writes_the_pages() {
    let printed = make_ok(&["docs"], &[]);
    assert!(printed.contains("target/docs/README.html"), "{printed}");
    let page = std::fs::read_to_string(root().join("target/docs/start/install.html")).unwrap();
    assert!(page.contains("<nav"), "{page}");
}

#[test]
fn the_soak_target_runs_for_the_given_duration() {
    let printed = make_ok(&["soak", DEBUG, "SOAK_SECONDS=5", "SWAPS=5"], &[]);
    assert!(printed.contains("mixed_load_fails_no_request ... ok"), "{printed}");
}

#[test]
fn the_carry_target_packs_everything_a_gpu_machine_needs() {
    let environment = [("SAGGAR_BIN", &*binary()), ("TESTS", Path::new("types")), ("XZ_PRESET", Path::new("0"))];
    let printed = make_ok(&["carry", DEBUG], &environment);
    let packed = printed.lines().last().unwrap().split_once(": ").unwrap().0;
    let listed = Command::new("tar").args(["--list", "--file", packed]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for name in ["bin/saggar", "bin/peers", "bin/adapters", "tests/types", "lenet.wasm", "run", "version"] {
        assert!(listed.lines().any(|line| line == format!("carry/{name}")), "{name}: {listed}");
    }
}

/// Runs in a copy of the recipe, so that no files of the tests are removed.
#[test]
fn the_clean_target_removes_build_outputs() {
    let copy = tempfile::tempdir().unwrap();
    let package = "[package]\nname = \"empty\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    std::fs::write(copy.path().join("Cargo.toml"), package).unwrap();
    std::fs::create_dir(copy.path().join("src")).unwrap();
    std::fs::write(copy.path().join("src/lib.rs"), "").unwrap();
    std::fs::copy(root().join("Makefile"), copy.path().join("Makefile")).unwrap();
    let built = ["target", "plugins/target", "tests/guests/target"].map(|path| copy.path().join(path));
    for folder in &built {
        std::fs::create_dir_all(folder).unwrap();
    }
    // Cargo cleans only directories with its own tag.
    std::fs::write(built[0].join("CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55\n").unwrap();
    let copy = copy.path().to_str().unwrap();
    make_ok(&["-C", copy, "clean"], &[("CARGO_TARGET_DIR", &built[0])]);
    assert!(built.iter().all(|folder| !folder.exists()), "{built:?}");
}

#[test]
fn the_attack_target_runs_the_named_attack() {
    let printed = make_ok(&["attack", DEBUG, "ATTACKS=rights", "ATTACK_SECONDS=1"], &[]);
    assert!(printed.contains("test result: ok") && !printed.contains(" 0 passed"), "{printed}");
}

#[test]
fn the_bench_target_runs_only_the_named_sections() {
    let printed = make_ok(&["bench", DEBUG, "ONLY=cold-start"], &[]);
    assert!(printed.contains("start of the process to the first answer"), "{printed}");
    let unknown = make(&["bench", DEBUG, "ONLY=nothing"], &[]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && said.contains("no section nothing; there are training, queue"), "{said}");
}

#[test]
fn the_peer_benchmark_lists_its_workloads() {
    let printed = make_ok(&["bench-peers", DEBUG, "ONLY=--list"], &[]);
    assert!(printed.lines().any(|line| line == "train-seq2seq"), "{printed}");
}

#[test]
fn the_fuzz_graphs_target_compiles_the_requested_number_of_graphs() {
    let printed = make_ok(&["fuzz-graphs", "GRAPHS=30", "NODES=1500"], &[]);
    assert!(printed.contains("30 graphs") && printed.contains(" for gpu: "), "{printed}");
}
