//! Plugins in C: the example is built with clang, trained, interrupted and served.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert, and it says SKIP")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use saggar_tests::{ServerProcess, binary, build_plugin, root};

/// Exit code of a build that failed.
const BUILD_FAILED: i32 = 7;
/// The number of the ten held-out pictures that the example must classify correctly.
const RIGHT_MIN: usize = 9;

/// Returns a copy of the example.
fn copy_example(place: &Path) -> PathBuf {
    let copy = place.join("c-plugin");
    fs::create_dir_all(copy.join("src")).unwrap();
    fs::copy(root().join("examples/c-plugin/plugin.toml"), copy.join("plugin.toml")).unwrap();
    for entry in fs::read_dir(root().join("examples/c-plugin/src")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.join("src").join(path.file_name().unwrap())).unwrap();
    }
    copy
}

/// Returns the label that the model gives a held-out picture.
fn predicted_label(server: &ServerProcess, digit: u8) -> i64 {
    let picture = format!("image=@examples/digits/held-out/{digit}.png");
    let answer = server.saggar_ok(&["predict", "softmax-c", "-i", &picture, "--json"]);
    serde_json::from_str::<serde_json::Value>(&answer).unwrap()["label"].as_i64().unwrap()
}

fn build(directory: &Path) -> Output {
    Command::new(binary()).arg("build").arg(directory).output().unwrap()
}

fn messages(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_plugin_in_c_trains_serves_and_resumes_like_a_plugin_in_rust() {
    let place = tempfile::tempdir().unwrap();
    let plugin = copy_example(place.path());
    let Some(component) = build_plugin(&plugin) else { return };
    let before = fs::read(&component).unwrap();
    build_plugin(&plugin).unwrap();
    assert_eq!(fs::read(&component).unwrap(), before, "builds of the same sources have the same bytes");

    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.push_digits();
    let wasm = component.to_str().unwrap();
    let job = server.saggar_ok(&["run", wasm, "--data", "digits", "--device", "cpu", "--seed", "1", "--", "epochs=40"]);
    let ended = server.wait_for_job(job.trim());
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    let loss = ended["metrics"]["loss"].as_f64().unwrap();
    assert!(loss < 0.3, "{loss}");
    server.wait_for_version("softmax-c", 1);
    let right = (0..10).filter(|digit| predicted_label(&server, *digit) == i64::from(*digit)).count();
    println!("loss {loss}, {right} of 10 held-out pictures");
    assert!(right >= RIGHT_MIN, "{right} of 10");

    let test = ["plugins", "test", wasm, "--data", "digits", "--preemptions", "1", "--device", "cpu", "--"];
    let tested = server.saggar(&[&test[..], &["epochs=4000"]].concat());
    assert!(tested.status.success(), "{}", messages(&tested));
}

#[test]
fn mistakes_in_a_plugin_in_c_are_reported_when_it_is_built() {
    let place = tempfile::tempdir().unwrap();
    let plugin = copy_example(place.path());
    let train = plugin.join("src/train.c");
    let source = fs::read_to_string(&train).unwrap();
    let broken = source.replace("training->epochs = (uint32_t)json_number", "training->epoch = (uint32_t)json_number");
    fs::write(&train, broken).unwrap();
    let built = build(&plugin);
    if messages(&built).contains("is needed to build this plugin") {
        return println!("SKIP: {}", messages(&built));
    }
    assert_eq!(built.status.code(), Some(BUILD_FAILED));
    assert!(messages(&built).contains("no member named 'epoch'"), "{}", messages(&built));

    let system = "#include <stdio.h>\n__attribute__((constructor)) static void hello(void) { puts(\"hello\"); }\n";
    fs::write(&train, format!("{system}{source}")).unwrap();
    let built = build(&plugin);
    assert_eq!(built.status.code(), Some(BUILD_FAILED));
    assert!(messages(&built).contains("functions of the system, such as printf"), "{}", messages(&built));

    fs::write(&train, source.replace("bool exports_saggar_plugin_trainer_train", "static bool unused_train")).unwrap();
    let built = build(&plugin);
    assert_eq!(built.status.code(), Some(BUILD_FAILED));
    assert!(messages(&built).contains("exports_saggar_plugin_trainer_train"), "{}", messages(&built));

    let mut without = Command::new(binary());
    let built = without.arg("build").arg(&plugin).env("PATH", place.path()).output().unwrap();
    assert_eq!(built.status.code(), Some(BUILD_FAILED));
    assert!(messages(&built).contains("apt install clang lld wasi-libc"), "{}", messages(&built));
}
