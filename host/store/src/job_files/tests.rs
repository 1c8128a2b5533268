//! The tests that every implementation of [`JobFiles`] must pass. `job_file_suite!` at the end lists them.

use std::io::Read;
use std::sync::Arc;

use object_store::memory::InMemory;
use tempfile::TempDir;

use super::*;
use crate::logged_items::LoggedKind;
use crate::objects::{BlockingObjects, ObjectStorage};

/// The place of a store, and what it needs to exist.
struct TestFiles {
    directory: TempDir,
    runtime: tokio::runtime::Runtime,
}

impl TestFiles {
    fn new() -> TestFiles {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        TestFiles { directory: tempfile::tempdir().unwrap(), runtime }
    }

    fn local(&self) -> Arc<dyn JobFiles> {
        Arc::new(LocalJobFiles::new(self.directory.path()))
    }

    fn memory_objects(&self) -> Arc<dyn JobFiles> {
        self.in_objects(ObjectStorage::from_store(Arc::new(InMemory::new())))
    }

    fn local_objects(&self) -> Arc<dyn JobFiles> {
        let root = self.directory.path().join("objects");
        std::fs::create_dir(&root).unwrap();
        self.in_objects(ObjectStorage::local(&root).unwrap())
    }

    fn in_objects(&self, objects: ObjectStorage) -> Arc<dyn JobFiles> {
        let objects = BlockingObjects::new(objects, self.runtime.handle().clone());
        Arc::new(ObjectJobFiles::new(objects, self.directory.path().join("cache")))
    }
}

fn outputs_are_listed_and_read(files: &dyn JobFiles) {
    assert_eq!(files.list_outputs("j").unwrap(), []);
    assert!(!files.output_directory("j").unwrap().exists());
    files.write_output("j", "b.txt", b"one").unwrap();
    files.write_output("j", "a/b.png", b"four").unwrap();
    files.write_output("other", "c", b"x").unwrap();
    let file = |path: &str, bytes| OutputFile { path: path.to_owned(), bytes };
    assert_eq!(files.list_outputs("j").unwrap(), [file("a/b.png", 4), file("b.txt", 3)]);
    let directory = files.output_directory("j").unwrap();
    assert_eq!(std::fs::read(directory.join("a/b.png")).unwrap(), b"four");
    for path in ["", "a", "c", "../secret", "a/../b.txt", "/etc/passwd", "b.txt/c", ".b.txt.0123"] {
        assert!(files.open_output("j", path).unwrap().is_none(), "{path}");
    }
}

fn logged_items_are_listed_by_step_and_replaced(files: &dyn JobFiles) {
    let key = |step, kind, name: &str| LoggedKey { step, kind, name: name.to_owned() };
    assert_eq!(files.list_logged_items("j").unwrap(), []);
    let [first, second] = [key(9, LoggedKind::Table, "z"), key(10, LoggedKind::Image, "validation/wrong")];
    assert_eq!(files.read_logged_item("j", &first).unwrap(), None);
    files.write_logged_item("j", &second, b"12345").unwrap();
    files.write_logged_item("j", &first, b"1").unwrap();
    files.write_logged_item("other", &second, b"x").unwrap();
    files.write_logged_item("j", &second, b"123").unwrap();
    let listed = files.list_logged_items("j").unwrap();
    let found: Vec<_> = listed.iter().map(|item| (item.key.clone(), item.bytes)).collect();
    assert_eq!(found, [(first, 1), (second.clone(), 3)]);
    assert!(listed.iter().all(|item| item.logged_ms > 1_700_000_000_000));
    assert_eq!(files.read_logged_item("j", &second).unwrap().as_deref(), Some(&b"123"[..]));
    assert_eq!(files.list_outputs("j").unwrap(), [], "a logged item is no output");
    files.remove("j").unwrap();
    assert_eq!(
        (files.list_logged_items("j").unwrap(), files.list_logged_items("other").unwrap().len()),
        (Vec::new(), 1)
    );
}

fn a_new_recording_replaces_an_earlier_one(files: &dyn JobFiles) {
    assert_eq!(files.read_recording("j", 1).unwrap(), b"");
    for content in [&b"one\ntwo\n"[..], b"three\n"] {
        let mut recording = files.create_recording("j", 1).unwrap();
        assert_eq!(recording.bytes(), 0);
        for line in content.split_inclusive(|byte| *byte == b'\n') {
            recording.append(line).unwrap();
            recording.flush().unwrap();
        }
        assert_eq!(files.read_recording("j", 1).unwrap(), content);
    }
    assert_eq!(files.log_bytes("j", 1).unwrap(), 0, "a recording is no log");
    files.remove("j").unwrap();
    assert_eq!(files.read_recording("j", 1).unwrap(), b"");
}

fn an_open_output_does_not_change_when_it_is_replaced(files: &dyn JobFiles) {
    files.write_output("j", "a/b.png", b"four").unwrap();
    let (mut opened, bytes) = files.open_output("j", "a/b.png").unwrap().unwrap();
    files.write_output("j", "a/b.png", b"another").unwrap();
    let mut text = String::new();
    opened.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), bytes), ("four", 4));
    assert_eq!(files.open_output("j", "a/b.png").unwrap().unwrap().1, 7);
    assert_eq!(files.list_outputs("j").unwrap().len(), 1);
}

fn a_log_grows_and_is_read_by_byte_ranges(files: &dyn JobFiles) {
    assert_eq!((files.log_bytes("j", 1).unwrap(), files.read_log("j", 1, 0..9).unwrap()), (0, Vec::new()));
    let mut log = files.open_log("j", 1).unwrap();
    log.append(b"one\n").unwrap();
    log.append(b"two\n").unwrap();
    log.flush().unwrap();
    log.append(b"three\n").unwrap();
    log.sync().unwrap();
    assert_eq!((log.bytes(), files.log_bytes("j", 1).unwrap()), (14, 14));
    drop(log);
    for (range, expected) in [(0..u64::MAX, "one\ntwo\nthree\n"), (2..6, "e\ntw"), (6..10, "o\nth"), (14..20, "")] {
        assert_eq!(files.read_log("j", 1, range.clone()).unwrap(), expected.as_bytes(), "{range:?}");
    }
    let mut again = files.open_log("j", 1).unwrap();
    assert_eq!(again.bytes(), 14);
    // More than one chunk.
    let line = [b'x'; 50_000];
    again.append(&line).unwrap();
    again.append(&line).unwrap();
    again.sync().unwrap();
    assert_eq!(files.log_bytes("j", 1).unwrap(), 100_014);
    assert_eq!(files.read_log("j", 1, 13..100_014).unwrap().len(), 100_001);
    assert_eq!(files.log_bytes("j", 2).unwrap(), 0, "each attempt has its log");
}

fn a_removed_job_has_no_files(files: &dyn JobFiles) {
    files.write_output("j", "a", b"1234").unwrap();
    files.write_output("k", "a", b"5").unwrap();
    let mut log = files.open_log("j", 1).unwrap();
    log.append(b"line\n").unwrap();
    log.sync().unwrap();
    assert_eq!((files.job_bytes("j").unwrap(), files.remove("j").unwrap()), (9, 9));
    assert_eq!((files.list_outputs("j").unwrap(), files.log_bytes("j", 1).unwrap()), (Vec::new(), 0));
    assert_eq!((files.remove("j").unwrap(), files.list_outputs("k").unwrap().len()), (0, 1));
    for bad in ["", "../k", "a/b", "."] {
        assert!(matches!(files.remove(bad), Err(StoreError::BadName { .. })), "{bad}");
    }
}

/// Runs each test of the suite on one implementation, the one that the method of this name returns.
macro_rules! files_tests {
    ($place:ident: $($test:ident)*) => {
        mod $place {
            $(#[test]
            fn $test() {
                let place = super::TestFiles::new();
                super::$test(&*place.$place());
            })*
        }
    };
}

macro_rules! job_file_suite {
    ($($test:ident)*) => {
        files_tests!(local: $($test)*);
        files_tests!(memory_objects: $($test)*);
        files_tests!(local_objects: $($test)*);
    };
}

job_file_suite! {
    outputs_are_listed_and_read
    an_open_output_does_not_change_when_it_is_replaced
    a_log_grows_and_is_read_by_byte_ranges
    logged_items_are_listed_by_step_and_replaced
    a_new_recording_replaces_an_earlier_one
    a_removed_job_has_no_files
}

/// Files that are being written, and files that no job can have written, are not outputs.
#[test]
fn only_outputs_are_listed_in_the_directory_of_a_job() {
    let place = TestFiles::new();
    let files = place.local();
    files.write_output("j", "a/b.txt", b"one").unwrap();
    files.write_output("j", "a/b.txt", b"two").unwrap();
    let job = place.directory.path().join("jobs/j");
    assert_eq!(std::fs::read(job.join("output/a/b.txt")).unwrap(), b"two");
    assert_eq!(std::fs::read_dir(job.join("output/a")).unwrap().count(), 1);
    std::fs::write(job.join("output/.b.txt.0123"), b"half").unwrap();
    std::fs::write(job.join("secret"), b"x").unwrap();
    std::os::unix::fs::symlink(job.join("secret"), job.join("output/link")).unwrap();
    assert_eq!(files.list_outputs("j").unwrap(), [OutputFile { path: "a/b.txt".to_owned(), bytes: 3 }]);
    assert!(files.open_output("j", "link").unwrap().is_none());
}
