//! `saggar inspect`: compiled graphs as shown to a user.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::Read;
use std::process::{Command, Stdio};

use saggar_tests::{ServerProcess, binary, guest, lenet, plugin, shared};
use serde_json::Value;

/// Returns the two output streams of `saggar inspect`, and its exit code.
fn inspect(arguments: &[&str]) -> (String, String, i32) {
    let output = Command::new(binary()).arg("inspect").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

fn inspect_ok(arguments: &[&str]) -> String {
    let (text, errors, code) = inspect(arguments);
    assert_eq!(code, 0, "{arguments:?}: {errors}");
    text
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&inspect_ok(&[arguments, &["--json"]].concat())).unwrap()
}

#[test]
fn a_plugin_lists_the_graphs_that_it_trains_and_predicts_with() {
    let lenet = lenet();
    let table = inspect_ok(&[lenet.to_str().unwrap()]);
    assert!(table.starts_with("GRAPH  PHASE"), "{table}");
    for part in ["training", "prediction", "image uint8[32, 28, 28]", "image uint8[1, 28, 28]", "loss float32[]"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    // Sizes follow the parameters and the fields.
    let other = ["--field", "image=uint8[16,16,3]", "--field", "label=int32:4", "--", "batch=8"];
    let table = inspect_ok(&[&[lenet.to_str().unwrap()], &other[..]].concat());
    assert!(table.contains("image uint8[8, 16, 16, 3]"), "{table}");
    let listed = json(&[lenet.to_str().unwrap()]);
    let first = &listed["graphs"][0];
    assert_eq!((&first["phase"], &first["graph"]), (&"training".into(), &1.into()));
    assert!(first["arena_bytes"].as_u64() >= first["peak_bytes"].as_u64() && first["kernels"].as_u64() > Some(10));
}

#[test]
fn every_stage_of_a_graph_is_shown() {
    let lenet = lenet();
    let one = |stage: &str| inspect_ok(&[lenet.to_str().unwrap(), "--graph", "1", "--stage", stage]);
    assert!(one("graph").contains("= conv2d %"));
    assert!(one("simplified").contains("assign "));
    let fused = one("fused");
    assert!(fused.contains("kernel 1 conv2d\n") && fused.contains("nodes  %"), "{fused}");
    assert!(one("schedule").contains("kernel 0 map ["));
    let memory = one("memory");
    assert!(
        memory.contains("slab 0 + ") && memory.contains("arena: ") && memory.contains("in use at once"),
        "{memory}"
    );
    let routines = one("routines");
    assert!(routines.contains("convolution by implicit GEMM, channels last"), "{routines}");
    let wgsl = one("wgsl");
    assert!(wgsl.contains("@compute") && wgsl.contains("var<workgroup> tile_a"), "{wgsl}");
    let all = inspect_ok(&[lenet.to_str().unwrap(), "--graph", "1", "--target", "gpu"]);
    for title in ["== graph", "== simplified", "== fused", "== schedule", "== memory", "== wgsl"] {
        assert!(all.contains(title), "{title}");
    }
    let document = json(&[lenet.to_str().unwrap(), "--graph", "1", "--target", "gpu"]);
    let stages = document["stages"].as_object().unwrap();
    assert_eq!(stages["fused"].as_array().unwrap().len(), stages["wgsl"].as_array().unwrap().len());
    let memory = &stages["memory"];
    assert!(memory["total_bytes"].as_u64() > memory["arena_bytes"].as_u64(), "{memory}");
}

#[test]
fn an_invalid_inspection_lists_the_valid_ones() {
    let lenet = lenet();
    let lenet = lenet.to_str().unwrap();
    let (_, errors, code) = inspect(&[lenet, "--target", "cpu", "--stage", "wgsl"]);
    assert!(code == 2 && errors.contains("--stage routines"), "{errors}");
    let (_, errors, code) = inspect(&[lenet, "--graph", "99"]);
    assert!(code == 3 && errors.contains("no graph 99"), "{errors}");
    let (_, errors, code) = inspect(&["nothing-of-that-name"]);
    assert!(code == 3 && errors.contains("hint: name a plugin's component"), "{errors}");
    let (_, errors, code) = inspect(&[lenet, "--field", "image=uint8[28,28]"]);
    assert!(code == 7 && errors.contains("label") && errors.contains("--field"), "{errors}");
    let (_, errors, code) = inspect(&[lenet, "--data", "digits", "--home", "/nowhere"]);
    assert!(code == 3 && errors.contains("digits"), "{errors}");
}

#[test]
fn a_graph_in_text_form_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let (lenet, file) = (lenet(), directory.path().join("step.graph"));
    let (lenet, file) = (lenet.to_str().unwrap(), file.to_str().unwrap());
    std::fs::write(file, inspect_ok(&[lenet, "--graph", "1", "--stage", "graph"])).unwrap();
    assert_eq!(inspect_ok(&[file, "--stage", "memory"]), inspect_ok(&[lenet, "--graph", "1", "--stage", "memory"]),);
    std::fs::write(file, "%0: float32[2] = frobnicate\n").unwrap();
    let (_, errors, code) = inspect(&[file]);
    assert!(code == 7 && errors.contains("line 1") && errors.contains("frobnicate"), "{errors}");
}

#[test]
fn a_plugin_that_never_returns_is_interrupted_and_inspected() {
    let hostile = guest("hostile");
    let (table, errors, code) = inspect(&[hostile.to_str().unwrap(), "--limit", "2s", "--", "train=ignore-stop"]);
    assert_eq!(code, 0, "{errors}");
    assert!(table.contains("training") && errors.contains("ended early"), "{table}{errors}");
}

#[test]
fn a_closed_output_pipe_ends_inspect_quietly() {
    let lenet = lenet();
    let mut child = Command::new(binary())
        .args(["inspect", lenet.to_str().unwrap(), "--graph", "1", "--target", "gpu"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}

#[test]
fn a_served_model_and_an_onnx_file_show_what_they_predict_with() {
    let home = tempfile::tempdir().unwrap();
    drop(ServerProcess::start_with_digits(home.path(), &[]));
    let home = home.path().to_str().unwrap();
    for name in ["digits", "digits@1"] {
        let table = inspect_ok(&[name, "--home", home]);
        assert!(table.contains("prediction"), "{table}");
    }
    let (_, errors, code) = inspect(&["digits@7", "--home", home]);
    assert!(code == 3 && errors.contains("digits@7"), "{errors}");
    let Some(file) = shared("models/ort-examples-mnist/model.onnx") else {
        println!("SKIP: no ONNX models beside the project");
        return;
    };
    let onnx = plugin("onnx");
    let table = inspect_ok(&[file.to_str().unwrap(), "--onnx-plugin", onnx.to_str().unwrap()]);
    assert!(table.contains("prediction"), "{table}");
}
