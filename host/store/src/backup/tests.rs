use std::fs;

use super::*;
use crate::models::{ModelPublication, ModelRegistry};
use crate::{ExternalRunStore, records};

/// Returns a state directory with records, a model, a checkpoint's files, an output and secrets.
fn filled(dir: &Path) -> StateDir {
    let home = StateDir::open(dir.join("home")).unwrap();
    drop(records::open(home.database()).unwrap());
    ExternalRunStore::new(home.external_runs()).create_experiment("tuning", 3).unwrap();
    let publication = ModelPublication {
        model: "net",
        plugin: b"\0asm",
        variables: &[],
        config: "{}",
        inputs: Default::default(),
        source_job: "",
        created_ms: 1,
        metrics: Default::default(),
        card: None,
        provenance: Default::default(),
    };
    ModelRegistry::new(home.models()).publish(&publication).unwrap();
    let long = format!("{}/{}/x.txt", "d".repeat(150), "e".repeat(150));
    for (path, content) in [
        ("objects/checkpoints/J/parts/abc", "part"),
        ("objects/checkpoints/J/epochs/1", ""),
        ("objects/checkpoints/J/100-1.json", "manifest"),
        ("objects/blobs/def", "wasm"),
        ("jobs/J/output/a/b.csv", "1,2\n"),
        (&format!("jobs/J/output/{long}"), "deep"),
        ("secrets.json", "{}"),
        ("cache/shaders/tuning", "tuned"),
        ("cache/component", "recreated"),
        ("uploads/u/chunk", "unfinished"),
        ("models/net/.tmp-dead/plugin.wasm", "uncommitted"),
    ] {
        let path = home.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    home
}

/// Returns the files below a directory, with their contents.
fn tree(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => {
                    let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                    found.push((name, fs::read(&path).unwrap()));
                }
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_restored_state_directory_has_the_same_files() {
    let dir = tempfile::tempdir().unwrap();
    let home = filled(dir.path());
    let file = dir.path().join("backup.tar");
    let summary = back_up(&home, &file, 7).unwrap();
    let target = dir.path().join("restored");
    assert_eq!(restore(&file, &target).unwrap(), summary);
    let is_copied = |(name, _): &(String, Vec<u8>)| {
        let left_out = [
            "cache/component",
            "uploads/",
            "models/net/.tmp-",
            "saggar.db",
            "external-runs.db",
            "server.lock",
            "models/.locks",
        ];
        !left_out.iter().any(|prefix| name.starts_with(prefix))
    };
    let of = |root: &Path| tree(root).into_iter().filter(is_copied).collect::<Vec<_>>();
    assert_eq!(of(&target), of(home.root()));
    assert_eq!(fs::read(target.join("models/.locks/net")).unwrap(), b"1", "numbers are not used again");
    drop(records::open(target.join("saggar.db")).unwrap());
    let experiments = ExternalRunStore::new(target.join("external-runs.db")).experiments().unwrap();
    assert_eq!(experiments.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["tuning"]);
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(target.join("secrets.json")).unwrap().permissions().mode() & 0o777, 0o600);
    let names: Vec<String> =
        fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.len(), 3, "nothing else is left: {names:?}");
    assert!(matches!(restore(&file, &target), Err(BackupError::NotEmpty { .. })));
    assert!(back_up(&home, &file, 7).is_err(), "a backup is not replaced");
    assert!(file.is_file(), "and stays");
}

#[test]
fn damaged_and_hostile_backups_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let home = filled(dir.path());
    let file = dir.path().join("backup.tar");
    back_up(&home, &file, 7).unwrap();
    let whole = fs::read(&file).unwrap();
    let (bad, target) = (dir.path().join("bad.tar"), dir.path().join("restored"));
    let refusal = |bytes: &[u8]| {
        fs::write(&bad, bytes).unwrap();
        let error = restore(&bad, &target).unwrap_err();
        assert!(!target.exists() && fs::read_dir(dir.path()).unwrap().count() == 3, "{error}");
        error.to_string()
    };
    for length in (0..whole.len() - 1024).step_by(977) {
        refusal(&whole[..length]);
    }
    let mut changed = whole.clone();
    let at = whole.windows(8).position(|window| window == b"manifest").unwrap();
    changed[at] ^= 1;
    assert!(refusal(&changed).contains("it was changed or damaged"));
    let archive = |entries: &[(&str, tar::EntryType, &[u8])], files: &[(&str, &[u8])]| {
        let list = |(path, content): &(&str, &[u8])| BackupFile {
            path: (*path).to_owned(),
            bytes: content.len() as u64,
            sha256: Digest::of(content),
            entry: None,
        };
        let index =
            BackupIndex { format: 1, program: String::new(), created_ms: 0, files: files.iter().map(list).collect() };
        let index = serde_json::to_vec(&index).unwrap();
        let mut bytes = Vec::new();
        for (name, kind, content) in entries.iter().copied().chain([(INDEX_ENTRY, tar::EntryType::Regular, &index[..])])
        {
            let mut header = tar::Header::new_ustar();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(kind);
            header.set_size(content.len() as u64);
            header.set_cksum();
            bytes.extend(header.as_bytes());
            bytes.extend(content);
            bytes.resize(bytes.len().next_multiple_of(512), 0);
        }
        bytes.resize(bytes.len() + 1024, 0);
        bytes
    };
    let regular = tar::EntryType::Regular;
    for name in ["../escaped", "/tmp/escaped", "a/../b", "./a", "a//b", ""] {
        let error = refusal(&archive(&[(name, regular, b"x")], &[(name, b"x")]));
        assert!(error.contains("not a path below") || error.contains("not a backup"), "{name}: {error}");
    }
    let link = archive(&[("a", tar::EntryType::Symlink, b"")], &[("a", b"")]);
    assert!(refusal(&link).contains("it is a link"));
    let long = archive(&[("a", tar::EntryType::GNULongName, b"b")], &[("a", b"b")]);
    assert!(refusal(&long).contains("it is a link, a directory or a device"));
    let twice = archive(&[("a", regular, b"x"), ("a", regular, b"x")], &[("a", b"x")]);
    assert!(refusal(&twice).contains("it is there twice"));
    assert!(refusal(&archive(&[("a", regular, b"x")], &[])).contains("the index does not list it"));
    assert!(refusal(&archive(&[], &[("a", b"x")])).contains("the backup has no such entry"));
    let inside = archive(&[("a", regular, b"x"), ("a/b", regular, b"y")], &[("a", b"x"), ("a/b", b"y")]);
    assert!(refusal(&inside).contains("another file is its directory"));
    assert!(refusal(b"").contains("it is not a backup, or is cut off"));
}
