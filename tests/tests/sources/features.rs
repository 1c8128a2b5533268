//! Checks `tests/features.md` against the existing tests, so that it cannot claim a feature that no test shows.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use saggar_tests::root;

/// The five systems, and the number of features of each.
const SYSTEMS: [(&str, u32); 5] = [("FH", 39), ("SG", 38), ("AZ", 27), ("KF", 26), ("AB", 24)];

/// Collects the names of all tests below a directory: functions directly after a test attribute.
fn collect_test_names(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                collect_test_names(&path, found);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
                if let Some(name) = name.filter(|_| is_test).and_then(|rest| rest.split('(').next()) {
                    found.insert(name.to_owned());
                }
                // Attributes and comments can be in between.
                is_test = line == "#[test]" || line.starts_with("#[tokio::test") || (is_test && line.starts_with("#["));
            }
        }
    }
}

/// A row of the page.
struct FeatureRow {
    state: String,
    tests: Vec<String>,
    remark: String,
}

fn feature_rows() -> BTreeMap<String, FeatureRow> {
    let page = std::fs::read_to_string(root().join("tests/features.md")).unwrap();
    let mut rows = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, tier, state, what, evidence, _] = cells[..] else { continue };
        if !SYSTEMS.iter().any(|(system, _)| name.starts_with(&format!("{system}-"))) {
            continue;
        }
        assert!(matches!(tier, "P0" | "P1" | "P2" | "N"), "{name}: tier {tier:?}");
        assert!(!what.is_empty(), "{name} says nothing");
        // Tests first, then what is missing; or only the latter.
        let (named, remark) = match evidence.starts_with('`') {
            true => evidence.split_once("; ").unwrap_or((evidence, "")),
            false => ("", evidence),
        };
        let tests = named.split(", ").map(|test| test.trim_matches('`').to_owned()).filter(|test| !test.is_empty());
        let row = FeatureRow { state: state.to_owned(), tests: tests.collect(), remark: remark.to_owned() };
        assert!(rows.insert(name.to_owned(), row).is_none(), "{name} stands there twice");
    }
    rows
}

#[test]
fn every_feature_row_exists_and_matches_its_state() {
    let rows = feature_rows();
    let named = |(system, count): (&'static str, u32)| (1..=count).map(move |number| format!("{system}-{number:02}"));
    let expected: BTreeSet<String> = SYSTEMS.into_iter().flat_map(named).collect();
    assert_eq!(rows.keys().cloned().collect::<BTreeSet<_>>(), expected);
    let mut there = BTreeSet::new();
    for directory in ["tests/tests", "host", "plugins"] {
        collect_test_names(&root().join(directory), &mut there);
    }
    assert!(there.len() > 500, "tests are found: {}", there.len());
    for (name, row) in &rows {
        for test in &row.tests {
            assert!(there.contains(test), "{name} names {test}, which is no test");
        }
        let (has_tests, has_remark) = (!row.tests.is_empty(), !row.remark.is_empty());
        match row.state.as_str() {
            "done" => {
                assert!(
                    has_tests && !has_remark,
                    "{name} is done, and says that something is missing, or names no test"
                )
            }
            "part" => assert!(has_tests && has_remark, "{name} does not say what is there and what is missing"),
            "open" => assert!(!has_tests && has_remark, "{name} does not say why it is open"),
            "no" => assert!(!has_tests, "{name} has tests"),
            state => panic!("{name} is {state:?}"),
        }
    }
}
