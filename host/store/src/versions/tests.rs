//! The tests that every implementation of [`VersionStore`] must pass. `version_suite!` at the end lists them.

use std::sync::Arc;

use object_store::memory::InMemory;
use tempfile::TempDir;

use super::directories::VersionDirectories;
use super::objects::ObjectVersions;
use super::*;
use crate::durable;
use crate::objects::{BlockingObjects, ObjectStorage};

/// Creates a version of one file.
pub(crate) fn publish_file(versions: &dyn VersionStore, name: &str) -> Result<PlacedVersion, StoreError> {
    let fill = |directory: &Path| write(directory, "file", b"x");
    publish(versions, name, versions.begin(name)?, |_| Ok(None), fill)
}

fn write(directory: &Path, file: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let path = directory.join(file);
    durable::write_new(&path, bytes).map_err(StoreError::io(&path))
}

/// Returns the names in a directory, sorted.
fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A store, and what it needs to exist.
struct TestVersions {
    directory: TempDir,
    runtime: tokio::runtime::Runtime,
}

impl TestVersions {
    fn new() -> TestVersions {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        TestVersions { directory: tempfile::tempdir().unwrap(), runtime }
    }

    fn directories(&self) -> Arc<dyn VersionStore> {
        Arc::new(VersionDirectories::new(self.directory.path()))
    }

    fn in_objects(&self, objects: ObjectStorage) -> Arc<dyn VersionStore> {
        let objects = BlockingObjects::new(objects, self.runtime.handle().clone());
        Arc::new(ObjectVersions::new(objects, "models", self.directory.path().join("cache")))
    }

    fn memory_objects(&self) -> Arc<dyn VersionStore> {
        self.in_objects(ObjectStorage::from_store(Arc::new(InMemory::new())))
    }

    fn local_objects(&self) -> Arc<dyn VersionStore> {
        let root = self.directory.path().join("objects");
        std::fs::create_dir(&root).unwrap();
        self.in_objects(ObjectStorage::local(&root).unwrap())
    }
}

fn versions_are_numbered_listed_and_read(versions: &dyn VersionStore) {
    assert!(versions.names().unwrap().is_empty() && versions.versions("m").unwrap().is_empty());
    for number in [1, 2] {
        let fill = |directory: &Path| {
            write(directory, "empty", b"")?;
            write(directory, "manifest.json", format!("{number}").as_bytes())
        };
        let placed = publish(versions, "m", versions.begin("m").unwrap(), |_| Ok::<_, StoreError>(None), fill).unwrap();
        assert_eq!(placed, PlacedVersion { version: number, is_new: true });
    }
    publish_file(versions, "a").unwrap();
    assert_eq!(
        (versions.names().unwrap(), versions.versions("m").unwrap()),
        (vec!["a".into(), "m".into()], vec![1, 2])
    );
    for number in [1, 2] {
        let manifest = |source: ManifestSource| match source {
            ManifestSource::Directory(directory) => std::fs::read_to_string(directory.join("manifest.json")).unwrap(),
            ManifestSource::Text { text, .. } => text.to_string(),
        };
        assert_eq!(manifest(versions.manifest("m", number).unwrap()), number.to_string());
        let directory = versions.local_directory("m", number).unwrap();
        assert_eq!(std::fs::read_to_string(directory.join("manifest.json")).unwrap(), number.to_string());
        assert_eq!(files(&directory), ["empty", "manifest.json"]);
        assert_eq!(std::fs::read(directory.join("empty")).unwrap(), b"");
        assert_eq!(manifest(versions.manifest("m", number).unwrap()), number.to_string());
    }
    assert!(!versions.local_directory("m", 3).unwrap().exists());
    let listed = |name| -> Vec<String> {
        let listed = versions.list(name).unwrap();
        listed.iter().map(|it| format!("{}/{} {}", it.name, it.version, it.manifest.is_ok())).collect()
    };
    assert_eq!(listed(None), ["a/1 true", "m/1 true", "m/2 true"]);
    assert_eq!(listed(Some("m")), ["m/1 true", "m/2 true"]);
    assert_eq!(listed(Some("other")), Vec::<String>::new());
}

fn an_existing_version_is_found_and_not_created_again(versions: &dyn VersionStore) {
    publish_file(versions, "m").unwrap();
    let find = |known: &[u64]| Ok::<_, StoreError>(known.last().copied());
    let fill = |_: &Path| panic!("nothing is to be written");
    let placed = publish(versions, "m", versions.begin("m").unwrap(), find, fill).unwrap();
    assert_eq!(placed, PlacedVersion { version: 1, is_new: false });
    assert_eq!(versions.versions("m").unwrap(), [1]);
}

fn a_failed_publication_leaves_nothing(versions: &dyn VersionStore) {
    let fail = |directory: &Path| {
        write(directory, "half", b"x")?;
        Err(StoreError::NotFound { name: "x".to_owned() })
    };
    let failed = publish(versions, "m", versions.begin("m").unwrap(), |_| Ok(None), fail);
    assert!(matches!(failed, Err(StoreError::NotFound { .. })));
    assert!(versions.names().unwrap().is_empty() && versions.versions("m").unwrap().is_empty());
    assert_eq!(publish_file(versions, "m").unwrap().version, 1);
    let directory = versions.local_directory("m", 1).unwrap();
    assert_eq!(files(&directory), ["file"]);
}

fn a_staged_directory_becomes_a_version_or_vanishes(versions: &dyn VersionStore) {
    let abandoned = versions.stage("m").unwrap();
    write(abandoned.path(), "half", b"x").unwrap();
    let path = abandoned.path().to_owned();
    drop(abandoned);
    assert!(!path.exists() && versions.names().unwrap().is_empty());
    let staged = versions.stage("m").unwrap();
    write(staged.path(), "column", b"1234").unwrap();
    let fill = |directory: &Path| {
        assert_eq!(directory, staged.path());
        write(directory, "manifest.json", b"{}")
    };
    let draft = versions.begin_staged("m", &staged).unwrap();
    let placed = publish(versions, "m", draft, |_| Ok::<_, StoreError>(None), fill).unwrap();
    let directory = versions.local_directory("m", placed.version).unwrap();
    drop(staged);
    assert_eq!((files(&directory), placed.version), (vec!["column".to_owned(), "manifest.json".to_owned()], 1));
    assert_eq!(std::fs::read(directory.join("column")).unwrap(), b"1234");
}

fn numbers_of_removed_versions_are_not_used_again(versions: &dyn VersionStore) {
    for number in [1, 2, 3] {
        assert_eq!(publish_file(versions, "m").unwrap().version, number);
    }
    let open = std::fs::File::open(versions.local_directory("m", 3).unwrap().join("file")).unwrap();
    assert!(versions.remove("m", 3).unwrap() && !versions.remove("m", 3).unwrap());
    assert!(!versions.remove("m", 9).unwrap() && !versions.remove("other", 1).unwrap());
    assert_eq!(std::io::read_to_string(open).unwrap(), "x", "an open file stays readable");
    assert!(!versions.local_directory("m", 3).unwrap().exists());
    assert_eq!(versions.versions("m").unwrap(), [1, 2]);
    assert_eq!(publish_file(versions, "m").unwrap().version, 4);
    for number in [1, 2, 4] {
        assert!(versions.remove("m", number).unwrap());
    }
    versions.remove_rest("m").unwrap();
    assert!(versions.names().unwrap().is_empty() && versions.versions("m").unwrap().is_empty());
    assert_eq!(publish_file(versions, "m").unwrap().version, 5);
}

fn concurrent_publishers_get_different_version_numbers(versions: &dyn VersionStore) {
    let mut got: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| publish_file(versions, "m").unwrap().version)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    got.sort_unstable();
    assert_eq!(got, [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Runs each test of the suite on one implementation, the one that the method of this name returns.
macro_rules! place_tests {
    ($place:ident: $($test:ident)*) => {
        mod $place {
            $(#[test]
            fn $test() {
                let place = super::TestVersions::new();
                super::$test(&*place.$place());
            })*
        }
    };
}

macro_rules! version_suite {
    ($($test:ident)*) => {
        place_tests!(directories: $($test)*);
        place_tests!(memory_objects: $($test)*);
        place_tests!(local_objects: $($test)*);
    };
}

version_suite! {
    versions_are_numbered_listed_and_read
    an_existing_version_is_found_and_not_created_again
    a_failed_publication_leaves_nothing
    a_staged_directory_becomes_a_version_or_vanishes
    numbers_of_removed_versions_are_not_used_again
    concurrent_publishers_get_different_version_numbers
}

/// Another machine has the same objects and an empty cache. A file that is damaged on its way is refused.
#[test]
fn a_version_is_fetched_and_verified_by_another_machine() {
    let (one, other) = (TestVersions::new(), TestVersions::new());
    let root = one.directory.path().join("objects");
    std::fs::create_dir(&root).unwrap();
    let here = one.in_objects(ObjectStorage::local(&root).unwrap());
    let there = other.in_objects(ObjectStorage::local(&root).unwrap());
    publish_file(&*here, "m").unwrap();
    publish_file(&*here, "m").unwrap();
    assert_eq!(files(&there.local_directory("m", 1).unwrap()), ["file"]);
    assert!(here.remove("m", 1).unwrap());
    assert!(!there.local_directory("m", 1).unwrap().exists(), "it was removed elsewhere");
    let parts = root.join("models-parts/m");
    assert_eq!(files(&parts).len(), 1, "the parts of the removed version are removed");
    let part = parts.join(files(&parts).first().unwrap()).join("0");
    std::fs::write(&part, "y").unwrap();
    let error = there.local_directory("m", 2).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    let cached = files(&other.directory.path().join("cache"));
    assert!(cached.iter().all(|name| name.starts_with(".lock-") || name.len() == 32), "{cached:?}");
    assert_eq!(cached.iter().filter(|name| name.len() == 32).count(), 1, "the one that was fetched: {cached:?}");
}

#[test]
fn names_and_version_numbers_are_validated() {
    for good in ["a", "0", "face-net_2.1", &"a".repeat(63)] {
        assert!(is_name(good), "{good}");
    }
    for bad in ["", ".", "..", ".a", "-a", "A", "a/b", "a\\b", "a b", "é", &"a".repeat(64)] {
        assert!(!is_name(bad), "{bad}");
    }
    assert_eq!(parse_version("12"), Some(12));
    for bad in ["", "0", "01", "+1", "-1", "1.0", "99999999999999999999"] {
        assert_eq!(parse_version(bad), None, "{bad}");
    }
}
