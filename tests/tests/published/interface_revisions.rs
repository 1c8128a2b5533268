//! Components of every published revision of the plugin interface train and predict on this host. The revisions are
//! kept with a guest that is built against each (`tests/guests/interface-revision-N`), so they are build recipes and not
//! binaries of unknown origin.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use saggar_tests::{HttpPayload, ServerProcess, guest, root};
use serde_json::json;

/// Returns the directories of the revisions, oldest first.
fn revisions() -> Vec<PathBuf> {
    let guests = root().join("tests/guests");
    let numbered = (1..).map(|number| guests.join(format!("interface-revision-{number}")));
    numbered.take_while(|directory| directory.is_dir()).collect()
}

/// Returns the files of a directory of interfaces, by name.
fn interfaces(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let file = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    entries.filter(|path| path.extension().is_some_and(|it| it == "wit")).map(file).collect()
}

/// Returns the declarations of the interfaces, without comments.
fn declarations(directory: &Path) -> BTreeMap<String, Vec<String>> {
    let code = |text: String| {
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    };
    interfaces(directory).into_iter().map(|(name, text)| (name, code(text))).collect()
}

#[test]
fn the_newest_revision_is_the_present_interface() {
    let newest = revisions().pop().unwrap();
    let (recorded, present) = (declarations(&newest.join("wit")), declarations(&root().join("wit")));
    let differs = |name: &&String| recorded.get(*name) != present.get(*name);
    let files: Vec<&String> = recorded.keys().chain(present.keys()).filter(differs).collect();
    assert!(
        files.is_empty(),
        "{files:?} differ from {}: the interface changed. Keep the revision, and add the next one beside it, with a copy \
         of wit/ (tests/guests/README.md)",
        newest.display()
    );
}

#[test]
fn components_of_every_revision_train_and_predict() {
    let revisions = revisions();
    assert!(revisions.len() >= 2, "{revisions:?}");
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    for (directory, number) in revisions.iter().zip(1..) {
        let name = format!("interface-revision-{number}");
        let component = guest(&name);
        // Only the newer revisions have the function.
        let calls_shards = std::fs::read(&component).unwrap().windows(6).any(|window| window == b"shards");
        let has_shards = declarations(&directory.join("wit"))["job.wit"].iter().any(|line| line.starts_with("shards:"));
        assert!(has_shards == (number > 1) && (calls_shards || !has_shards), "{name}");
        server.saggar_ok(&["run", component.to_str().unwrap(), "--device", "cpu", "--wait"]);
        server.wait_for_version(&name, 1);
        let body = json!({ "x": [2.0] });
        let path = format!("/models/{name}/predict");
        let answer = server.request("POST", &path, HttpPayload::Json(&body));
        assert_eq!(answer.status, 200, "{name}: {}", answer.text);
        let y = answer.json()["y"][0].as_f64().unwrap_or_else(|| panic!("{}", answer.text));
        assert!((y - 6.0).abs() < 1e-3, "{name}: {y}");
    }
}

/// A real component whose interface has another version is refused, with both versions.
#[test]
fn components_of_unknown_versions_are_refused_with_both_versions() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let component = std::fs::read(guest("interface-revision-1")).unwrap();
    for (version, has_newer_host) in [("0.2.0", true), ("0.0.9", false), ("9.1.0", true)] {
        // The versions have the same length, so the component stays well formed.
        let mut other = component.clone();
        for at in 0..other.len() - 6 {
            if &other[at..at + 6] == b"@0.1.0" {
                other[at + 1..at + 6].copy_from_slice(version.as_bytes());
            }
        }
        let refused = server.request("POST", "/api/v1/plugins", HttpPayload::Bytes("application/wasm", &other));
        assert_eq!(refused.status, 422, "{}", refused.text);
        let error = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains(&format!("has version {version}, and this host speaks 0.1.0")), "{error}");
        assert_eq!(error.contains("take a newer saggar"), has_newer_host, "{error}");
        assert!(error.contains("build the plugin against saggar:plugin@0.1.0"), "{error}");
    }
}
