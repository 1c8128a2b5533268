//! Checks the dependencies of the workspaces: licences and duplicates as allowed in `.ci/deny.toml`, and features that
//! a release must not have.
//!
//! `cargo deny` checks the same file and more. This test needs only cargo, so it always runs.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use saggar_tests::root;
use serde_json::Value;

/// Returns cargo's output for these arguments, in a directory of the tree.
fn cargo(dir: &Path, arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(arguments).args(["--locked", "--offline"]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the packages that a workspace uses on Linux: name, version, licence.
fn packages(dir: &Path) -> Vec<(String, String, String)> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = ["metadata", "--format-version", "1", "--filter-platform", &platform];
    let metadata: Value = serde_json::from_str(&cargo(dir, &arguments)).unwrap();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let used: BTreeSet<&str> = nodes.iter().map(|node| node["id"].as_str().unwrap()).collect();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    packages
        .filter(|package| used.contains(package["id"].as_str().unwrap()))
        .map(|package| (text(&package["name"]), text(&package["version"]), text(&package["license"])))
        .collect()
}

/// Returns the content of `.ci/deny.toml`.
fn rules() -> toml::Table {
    std::fs::read_to_string(root().join(".ci/deny.toml")).unwrap().parse().unwrap()
}

/// Returns the strings of an array in the rules.
fn strings(value: &toml::Value) -> BTreeSet<String> {
    value.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

/// Returns whether allowed licences satisfy an SPDX expression. Older manifests write `/` for `OR`.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = is_any_met(&words, &mut at, allowed);
    met && at == words.len()
}

/// Evaluates `A OR B`, which has the lowest precedence.
fn is_any_met(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut met = are_all_met(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= are_all_met(words, at, allowed);
    }
    met
}

/// Evaluates `A AND B`.
fn are_all_met(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut met = is_one_met(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= is_one_met(words, at, allowed);
    }
    met
}

/// Evaluates a licence, a licence with an exception, or an expression in parentheses.
fn is_one_met(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let met = is_any_met(words, at, allowed);
        let is_closed = words.get(*at) == Some(&")");
        *at += 1;
        return met && is_closed;
    }
    if words.get(*at) == Some(&"WITH") {
        let licence = format!("{word} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
        return allowed.contains(&licence);
    }
    allowed.contains(*word)
}

#[test]
fn licence_expressions_are_read_as_spdx_says() {
    let allowed: BTreeSet<String> = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
    for met in ["MIT", "GPL-3.0 OR MIT", "Unlicense/MIT", "(GPL-3.0 OR MIT) AND ISC", "Apache-2.0 WITH LLVM-exception"]
    {
        assert!(is_met(met, &allowed), "{met}");
    }
    for unmet in
        ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR GPL-3.0) AND GPL-3.0", "Apache-2.0", "(MIT", "MIT)", "MIT ISC"]
    {
        assert!(!is_met(unmet, &allowed), "{unmet}");
    }
}

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let rules = rules();
    let allowed = strings(&rules["licenses"]["allow"]);
    let exceptions: BTreeMap<&str, BTreeSet<String>> = rules["licenses"]["exceptions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|exception| (exception["crate"].as_str().unwrap(), strings(&exception["allow"])))
        .collect();
    let mut found = BTreeSet::new();
    for workspace in [root(), root().join("plugins")] {
        for (name, version, licence) in packages(&workspace) {
            let granted = exceptions.get(&*name).is_some_and(|more| is_met(&licence, more));
            assert!(
                granted || is_met(&licence, &allowed),
                "{name} {version} has the licence `{licence}`, which .ci/deny.toml does not allow"
            );
            found.insert(name);
        }
    }
    assert!(found.len() > 300, "{} packages found", found.len());
    assert!(
        exceptions.keys().all(|name| found.contains(*name)),
        "an exception of .ci/deny.toml has no crate: {exceptions:?}"
    );
}

#[test]
fn duplicate_crates_are_listed_exceptions() {
    let rules = rules();
    let agreed = strings(&rules["bans"]["skip"]);
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, version, _) in packages(&root()) {
        versions.entry(name).or_default().insert(version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let twice: BTreeSet<String> = versions.keys().cloned().collect();
    let unforeseen: Vec<_> = versions.iter().filter(|(name, _)| !agreed.contains(*name)).collect();
    assert!(unforeseen.is_empty(), "use one version, or list them in .ci/deny.toml: {unforeseen:?}");
    let gone: Vec<_> = agreed.difference(&twice).collect();
    assert!(gone.is_empty(), "remove from .ci/deny.toml, there is one version only: {gone:?}");
}

#[test]
fn a_release_build_has_no_device_fault_injection() {
    let features = |selection: &[&str]| {
        let arguments = [&["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p} {f}"], selection];
        let tree = cargo(&root(), &arguments.concat());
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
    holds("examples/digits/LICENSE-BSD-3-Clause", &["The scikit-learn developers", "Neither the name of"]);
}
