//! The pipeline cache: compiled shaders are reused by the next process, and ignored if the file is not valid.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert; a skip is said")]

use std::path::{Path, PathBuf};
use std::process::Command;

use saggar_tests::{HttpPayload, ServerProcess, binary};
use serde_json::json;

/// Starts a server on the first adapter, and returns it with the model's label for a digit.
fn serve_and_classify(home: &Path) -> (ServerProcess, u64) {
    let mut command = Command::new(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "vulkan:0", "--home"]).arg(home);
    let server = ServerProcess::from_command(command, home);
    server.wait_for_version("digits", 1);
    let digit = json!({ "image": vec![[0, 3, 12, 16, 2, 0, 0, 0]; 8] });
    let answer = server.request("POST", "/models/digits/predict", HttpPayload::Json(&digit));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let label = answer.json()["label"].as_u64().unwrap();
    (server, label)
}

/// Returns the files with compiled shaders.
fn cache_files(home: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(home.join("cache/shaders")).into_iter().flatten();
    let files = files.map(|file| file.unwrap().path());
    files.filter(|file| file.extension().is_none_or(|ending| ending != "json")).collect()
}

#[test]
fn a_damaged_pipeline_cache_is_logged_and_rebuilt() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    if !server.has_vulkan() {
        return;
    }
    drop(server);
    let log = || std::fs::read_to_string(home.path().join("server.log")).unwrap();
    let says = "the pipeline cache is invalid; shaders are recompiled";
    let (server, expected) = serve_and_classify(home.path());
    // The cache is written when the device is idle.
    server.wait_for("a cache", |_| (!cache_files(home.path()).is_empty()).then_some(()));
    drop(server);
    let [file] = &cache_files(home.path())[..] else { panic!("{:?}", cache_files(home.path())) };
    assert!(!log().contains(says), "{}", log());

    let whole = std::fs::read(file).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(file, &damaged).unwrap();
    let (server, after) = serve_and_classify(home.path());
    assert_eq!(after, expected);
    assert!(log().contains(says) && log().contains("its header or digest does not match"), "{}", log());
    server.wait_for("another cache", |_| (std::fs::read(file).unwrap() != damaged).then_some(()));
    drop(server);
    let (_server, after) = serve_and_classify(home.path());
    assert_eq!((after, log().matches(says).count()), (expected, 1), "the new cache is used: {}", log());
}
