//! Crash tests of everything durable except checkpoints: model versions, datasets, uploads, outputs, notes, and the
//! removal of a job. See [`super::crash_test`]. The rule is the same for all: the old state or the new, complete, and
//! the new one once it was acknowledged.

use std::path::Path;

use saggar_tensor::{DType, Descriptor, Shape};

use super::crash_test::{CrashTest, scratch};
use crate::models::{self, ModelPublication, ModelRegistry, VersionCompleteness};
use crate::{
    DatasetStore, Digest, JobFiles, LocalJobFiles, SavedVariable, StateDir, StoreError, UploadStore, VariableKind,
};

#[test]
fn a_model_version_is_published_whole_or_not_at_all() {
    let variable = |byte| SavedVariable {
        name: "w".to_owned(),
        kind: VariableKind::Parameter,
        descriptor: Descriptor::new(DType::U8, Shape::new([100]).unwrap()),
        bytes: vec![byte; 100].into(),
    };
    let publish = |root: &Path, byte| {
        let variables = [variable(byte)];
        let (plugin, config, source_job) = (&b"\0asm"[..], "{}", "J");
        let it = ModelPublication {
            model: "net",
            plugin,
            variables: &variables,
            config,
            inputs: Default::default(),
            source_job,
            created_ms: 5,
            metrics: Default::default(),
            card: None,
            provenance: Default::default(),
        };
        ModelRegistry::new(root.join("models")).publish(&it).map(drop)
    };
    let check = |root: &Path, done: bool| {
        let found = ModelRegistry::new(root.join("models")).scan().unwrap();
        // An interrupted attempt can use up a number, but no number is used twice, and a numbered version is complete.
        let mut contents = Vec::new();
        for version in &found {
            assert_eq!(version.state, VersionCompleteness::Complete);
            contents.push(models::load(&version.dir).unwrap().1);
        }
        let (old, new) = (vec![variable(1)], vec![variable(2)]);
        assert!(contents == [old.clone(), new] || !done && contents == [old], "{} versions, {done}", found.len());
    };
    let prepare = |root: &Path| publish(root, 1).unwrap();
    CrashTest { prepare, act: |root: &Path| publish(root, 2), check }.run_all();
    // The first version of a model also creates its directory and the lock file beside it.
    let first = |root: &Path, done: bool| {
        let found = ModelRegistry::new(root.join("models")).scan().unwrap();
        assert!(found.iter().all(|version| models::verify(&version.dir).is_ok()));
        assert!(found.len() == 1 || !done && found.is_empty(), "{} versions, {done}", found.len());
    };
    let prepare = |root: &Path| std::fs::create_dir(root.join("models")).unwrap();
    CrashTest { prepare, act: |root: &Path| publish(root, 2), check: first }.run_all();
}

/// A dataset of two items.
const CSV: [(&str, &[u8]); 2] = [
    ("dataset.json", br#"{"format":"csv","file":"x.csv","fields":[{"name":"a","columns":[0,1],"dtype":"uint8"}]}"#),
    ("x.csv", b"1\n2\n"),
];

#[test]
fn a_dataset_is_ingested_whole_or_not_at_all() {
    let source = scratch();
    for (path, bytes) in CSV {
        std::fs::write(source.path().join(path), bytes).unwrap();
    }
    let ingest = |root: &Path| DatasetStore::new(root.join("datasets")).ingest("d", source.path(), 7).map(drop);
    let check = |root: &Path, done: bool| {
        let datasets = DatasetStore::new(root.join("datasets"));
        let found = datasets.list().unwrap();
        assert!(found.len() == 1 || !done && found.is_empty(), "{} versions, {done}", found.len());
        for info in found {
            assert_eq!(datasets.open(&info).unwrap().len(None).unwrap(), 2);
        }
    };
    let prepare = |root: &Path| std::fs::create_dir(root.join("datasets")).unwrap();
    CrashTest { prepare, act: ingest, check }.run_all();
}

#[test]
fn an_interrupted_upload_resumes() {
    let announced = || {
        let file = |(path, bytes): &(&str, &[u8])| crate::dataset::upload::UploadFile {
            path: (*path).to_owned(),
            size: bytes.len() as u64,
            sha256: Digest::of(bytes),
            chunks: vec![Digest::of(bytes)],
        };
        CSV.iter().map(file).collect::<Vec<_>>()
    };
    let act = |root: &Path| {
        let uploads = UploadStore::new(root.join("uploads"), DatasetStore::new(root.join("datasets")));
        let begun = uploads.begin("d", announced(), |_| Ok(()))?;
        for chunk in &begun.missing {
            let (_, bytes) = CSV.iter().find(|(_, bytes)| Digest::of(bytes) == *chunk).unwrap();
            uploads.put_chunk(&begun.id, chunk, bytes)?;
        }
        uploads.commit("d", &begun.id, 7, |_, _| Ok(())).map(drop)
    };
    let check = |root: &Path, done: bool| {
        let found = DatasetStore::new(root.join("datasets")).list().unwrap();
        assert!(found.len() == 1 || !done && found.is_empty(), "{} versions, {done}", found.len());
    };
    let prepare = |root: &Path| {
        std::fs::create_dir(root.join("uploads")).unwrap();
        std::fs::create_dir(root.join("datasets")).unwrap();
    };
    CrashTest { prepare, act, check }.run_all();
}

#[test]
fn an_output_is_replaced_atomically() {
    let write = |root: &Path, text: &str| {
        StateDir::from_existing(root).job_files().write_output("j", "a/b.txt", text.as_bytes())
    };
    let check = |root: &Path, done: bool| {
        let found = std::fs::read_to_string(root.join("jobs/j/output/a/b.txt")).unwrap();
        assert!(found == "new and longer" || !done && found == "old", "{found:?}, {done}");
        assert_eq!(LocalJobFiles::new(root).list_outputs("j").unwrap().len(), 1);
    };
    let prepare = |root: &Path| write(root, "old").unwrap();
    CrashTest { prepare, act: |root: &Path| write(root, "new and longer"), check }.run_all();
}

#[test]
fn a_note_beside_a_model_is_replaced_atomically() {
    let write = |root: &Path, text: &str| {
        ModelRegistry::new(root.join("models")).write_note("net", "serving.json", text.as_bytes())
    };
    let check = |root: &Path, done: bool| {
        let found = ModelRegistry::new(root.join("models")).read_note("net", "serving.json").unwrap().unwrap();
        assert!(found == b"new" || !done && found == b"old", "{found:?}, {done}");
    };
    let prepare = |root: &Path| write(root, "old").unwrap();
    CrashTest { prepare, act: |root: &Path| write(root, "new"), check }.run_all();
}

#[test]
fn removing_a_job_directory_is_atomic_and_durable() {
    let prepare = |root: &Path| {
        for job in ["j", "other"] {
            StateDir::from_existing(root).job_files().write_output(job, "a/b.txt", b"x").unwrap();
            std::fs::write(StateDir::from_existing(root).job(job).join("attempt-1.log"), "line\n").unwrap();
        }
    };
    let act = |root: &Path| StateDir::from_existing(root).job_files().remove("j").map(drop);
    let check = |root: &Path, done: bool| {
        let home = StateDir::from_existing(root);
        assert_eq!(std::fs::read_to_string(home.job("other").join("attempt-1.log")).unwrap(), "line\n");
        assert_eq!(home.job_files().list_outputs("other").unwrap().len(), 1);
        assert!(!done || !home.job("j").exists());
        // The job exists with all its data, or not at all.
        let outputs = home.job_files().list_outputs("j").unwrap().len();
        assert_eq!(home.job("j").exists(), outputs == 1 && home.job("j").join("attempt-1.log").exists());
        if done {
            assert_eq!(home.job_files().remove("j").unwrap(), 0);
            assert_eq!(std::fs::read_dir(home.jobs()).unwrap().count(), 1, "nothing hidden is left");
        }
    };
    CrashTest { prepare, act, check }.run_all();
}

#[test]
fn removing_a_job_returns_the_freed_bytes_and_refuses_paths() {
    let directory = scratch();
    let home = StateDir::open(directory.path()).unwrap();
    home.job_files().write_output("j", "b.txt", b"four").unwrap();
    std::fs::write(home.job("j").join("attempt-1.log"), "line\n").unwrap();
    assert_eq!(home.job_files().remove("j").unwrap(), 9);
    assert_eq!(home.job_files().remove("j").unwrap(), 0);
    for path in ["", ".", "..", "../jobs", "a/b", ".removed-j", "a\\b"] {
        assert!(matches!(home.job_files().remove(path), Err(StoreError::BadName { .. })), "{path}");
    }
    assert!(home.jobs().is_dir());
}

#[test]
fn a_new_state_directory_is_durable() {
    let act = |root: &Path| StateDir::open(root.join("a/home"))?.job_files().write_output("j", "b.txt", b"x");
    let check = |root: &Path, done: bool| {
        let found = LocalJobFiles::new(root.join("a/home")).list_outputs("j").unwrap();
        assert!(found.len() == 1 || !done && found.is_empty(), "{found:?}, {done}");
    };
    CrashTest { prepare: |root: &Path| std::fs::create_dir(root.join("a")).unwrap(), act, check }.run_all();
}
