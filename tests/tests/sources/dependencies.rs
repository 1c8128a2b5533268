//! Checks features that a release must not have, and the licence texts of the project. `make lint` checks the licences
//! and duplicates of dependencies with cargo-deny.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::process::Command;

use saggar_tests::root;

/// Returns the output of cargo with these arguments, in the root of the tree.
fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output =
        Command::new(cargo).args(arguments).args(["--locked", "--offline"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_release_build_has_no_device_fault_injection() {
    let features = |selection: &[&str]| {
        let arguments = [&["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p} {f}"], selection];
        let tree = cargo(&arguments.concat());
        let line = tree.lines().find(|line| line.starts_with("saggar-gpu ")).unwrap();
        line.to_owned()
    };
    // The features of `make build`.
    let release = features(&["--package", "saggar"]);
    assert!(!release.contains("fault-injection"), "{release}");
    // The features of the tests, which would otherwise wait for injected losses that never happen.
    let tested = features(&["--package", "saggar-tests"]);
    assert!(tested.contains("fault-injection"), "{tested}");
}

#[test]
fn licence_texts_are_included() {
    let holds = |path: &str, parts: &[&str]| {
        let text = std::fs::read_to_string(root().join(path)).unwrap();
        parts.iter().for_each(|part| assert!(text.contains(part), "{path} lacks `{part}`"));
    };
    holds("LICENSE-MIT", &["Copyright (c) 2026 The saggar authors", "WITHOUT WARRANTY OF\nANY KIND"]);
    holds(
        "LICENSE-APACHE",
        &["END OF TERMS AND CONDITIONS", "APPENDIX: How to apply the Apache License to your work."],
    );
    holds("host/charts/fonts/LICENSE-DejaVu", &["Copyright (c) 2003 by Bitstream", "THE FONT SOFTWARE IS PROVIDED"]);
    holds("examples/digits/LICENSE-BSD-3-Clause", &["The scikit-learn developers", "Neither the name of"]);
}
