//! Versions in an object store of which each machine has a copy in a directory, which other code watches and reads.
//!
//! ```text
//! <root>/<name>/<version>/              the copy
//! <root>/.mirrored/<name>/<version>     the identifier of the version that it is a copy of
//! ```
//!
//! The store is the truth. A copy appears by a rename, so it is whole. A directory that is no copy was made by hand: it is
//! published under its number if that was never used, and otherwise renamed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;

use super::directories::VersionDirectories;
use super::objects::{ObjectVersions, RenumberPublication, VersionIndex, VersionListing};
use super::publication_fence::PendingPublication;
use super::staged_draft::{DirectoryCommit, StagedDraft};
use super::{MANIFEST_FILE, ManifestSource, StagedVersion, VersionDraft, VersionStore};
use crate::durable::{self, disk};
use crate::error::StoreError;

/// The permissions of fetched files, less the umask: those of a version that is published here.
const FILE_MODE: u32 = 0o666;

/// Files that can be all that a name has. A removal of the name removes them first.
const KEPT_FILES: [&str; 2] = ["model.json", "serving.json"];

/// A version: its name and number.
type VersionKey = (String, u64);

/// Versions in an object store, with copies in a directory.
#[derive(Debug)]
pub(crate) struct MirroredVersions {
    remote: ObjectVersions,
    local: VersionDirectories,
    root: PathBuf,
    /// Directories that were made by hand and are no valid versions, with their times: they are not read again.
    refused: Mutex<BTreeMap<VersionKey, Option<SystemTime>>>,
    /// Held during a synchronization.
    turn: Mutex<()>,
}

/// What a synchronization has changed, as names and numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorChanges {
    /// Versions of which this machine got a copy.
    pub fetched: Vec<(String, u64)>,
    /// Versions that were removed elsewhere, and now here.
    pub removed: Vec<(String, u64)>,
    /// Versions that were made by hand here, and are now in the store.
    pub published: Vec<(String, u64)>,
    /// The new paths of directories that were made by hand under a number that was used before.
    pub set_aside: Vec<PathBuf>,
}

impl MirroredVersions {
    /// Returns the versions in `remote`, with copies below `root`.
    pub(crate) fn new(remote: ObjectVersions, root: &Path) -> MirroredVersions {
        let (local, root) = (VersionDirectories::new(root), root.to_owned());
        MirroredVersions { remote, local, root, refused: Mutex::default(), turn: Mutex::default() }
    }

    /// Fetches versions that are new in the store, removes those that were removed from it, and publishes those that were
    /// made by hand and that `is_valid` accepts. A version that fails is logged, and the next call tries again.
    ///
    /// # Errors
    /// Returns any error of the store's listing.
    pub(crate) fn synchronize(&self, is_valid: &dyn Fn(&Path) -> bool) -> Result<MirrorChanges, StoreError> {
        let _turn = self.turn.lock();
        let listing = self.remote.listing(None)?;
        let mut changes = MirrorChanges::default();
        for name in self.local.names()? {
            for version in self.local.versions(&name)? {
                let key = (name.clone(), version);
                let checked = self.check_copy(&key, &listing, is_valid, &mut changes);
                log_failure(&key, checked);
            }
        }
        for (key, index) in listing.existing {
            if self.local.directory(&key.0, key.1).exists() {
                continue;
            }
            match index.and_then(|index| self.fetch(&key.0, key.1, &index)) {
                Ok(()) => changes.fetched.push(key),
                Err(error) => log_failure(&key, Err(error)),
            }
        }
        for name in listing.removed.into_iter().map(|(name, _)| name) {
            self.remove_leftovers(&name)?;
        }
        Ok(changes)
    }

    /// Removes the files beside the versions of a name that has none any more, unless one of [`KEPT_FILES`] is among them.
    fn remove_leftovers(&self, name: &str) -> Result<(), StoreError> {
        let directory = self.root.join(name);
        if !directory.is_dir()
            || !self.local.versions(name)?.is_empty()
            || KEPT_FILES.iter().any(|file| directory.join(file).exists())
        {
            return Ok(());
        }
        for (path, kind) in disk::list(&directory).unwrap_or_default() {
            if kind.is_file() {
                let _ = disk::remove_file(&path);
            }
        }
        // Fails if a version is being prepared.
        let _ = disk::remove_directory(&directory);
        Ok(())
    }

    /// Removes, publishes or renames the directory of a version if it is not a copy of what the store has.
    fn check_copy(
        &self,
        key: &VersionKey,
        listing: &VersionListing,
        is_valid: &dyn Fn(&Path) -> bool,
        changes: &mut MirrorChanges,
    ) -> Result<(), StoreError> {
        let (name, version) = (key.0.as_str(), key.1);
        let (directory, copied) = (self.local.directory(name, version), self.copied_id(name, version)?);
        let is_removed = listing.removed.contains(key);
        match listing.existing.get(key) {
            Some(Ok(index)) if copied.as_deref() == Some(index.id()) => return Ok(()),
            Some(Ok(index)) if has_manifest(&directory, index.manifest.as_deref()) => {
                return self.record_copy(name, version, index.id());
            }
            Some(Err(_)) => return Ok(()),
            None if is_removed && copied.is_some() => {
                self.remove_copy(name, version)?;
                changes.removed.push(key.clone());
                return Ok(());
            }
            // It was published here after the listing.
            None if copied.is_some() && self.remote.index(name, version)?.is_some() => return Ok(()),
            Some(Ok(_)) | None => {}
        }
        let modified = directory.metadata().and_then(|data| data.modified()).ok();
        if self.refused.lock().get(key) == Some(&modified) {
            return Ok(());
        }
        if !is_valid(&directory) {
            self.refused.lock().insert(key.clone(), modified);
            return Ok(());
        }
        let published = match is_removed {
            true => None,
            false => self.remote.commit_directory(name, &directory, Some(version))?,
        };
        match published {
            Some((_, index)) => {
                self.record_copy(name, version, index.id())?;
                changes.published.push(key.clone());
            }
            None => match self.remote.index(name, version)? {
                // Another machine was given the same files, and was faster.
                Some(index) if has_manifest(&directory, index.manifest.as_deref()) => {
                    self.record_copy(name, version, index.id())?;
                }
                Some(_) | None => changes.set_aside.push(self.local.set_aside(name, version)?),
            },
        }
        Ok(())
    }

    fn fetch(&self, name: &str, version: u64, index: &VersionIndex) -> Result<(), StoreError> {
        let staged = self.local.stage(name)?;
        self.remote.fetch_files(index, staged.path(), FILE_MODE)?;
        self.record_copy(name, version, index.id())?;
        self.local.install(name, version, staged.path()).map(drop)
    }

    fn remove_copy(&self, name: &str, version: u64) -> Result<bool, StoreError> {
        let removed = self.local.remove(name, version)?;
        match disk::remove_file(&self.marker(name, version)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io(self.marker(name, version))(error))
            }
            Ok(()) | Err(_) => Ok(removed),
        }
    }

    /// The file that says which version a directory is a copy of. It is written before the directory has its name.
    fn marker(&self, name: &str, version: u64) -> PathBuf {
        self.root.join(".mirrored").join(name).join(version.to_string())
    }

    fn record_copy(&self, name: &str, version: u64, id: &str) -> Result<(), StoreError> {
        let marker = self.marker(name, version);
        let directory = marker.parent().unwrap_or(&marker);
        durable::create_directories_below(&self.root, directory).map_err(StoreError::io(directory))?;
        durable::replace(&marker, id.as_bytes()).map_err(StoreError::io(&marker))
    }

    fn copied_id(&self, name: &str, version: u64) -> Result<Option<String>, StoreError> {
        let marker = self.marker(name, version);
        match disk::read(&marker) {
            Ok(id) => Ok(Some(String::from_utf8_lossy(&id).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io(&marker)(error)),
        }
    }

    /// Makes a registered version visible in the store, as [`ObjectVersions::complete_publication`] does. The next
    /// synchronization fetches it.
    pub(crate) fn complete_publication(
        &self,
        publication: &PendingPublication,
        renumber: RenumberPublication<'_>,
    ) -> Result<Option<u64>, StoreError> {
        self.remote.complete_publication(publication, renumber)
    }

    /// Returns whether the store no longer has a version. A store that does not answer may have it.
    pub(crate) fn is_gone(&self, name: &str, version: u64) -> bool {
        self.remote.index(name, version).is_ok_and(|index| index.is_none())
    }
}

fn log_failure((name, version): &VersionKey, outcome: Result<(), StoreError>) {
    if let Err(error) = outcome {
        tracing::warn!(name, version, %error, "the version is not synchronized with the bucket");
    }
}

/// Returns whether the manifest in a directory has this content.
fn has_manifest(directory: &Path, manifest: Option<&str>) -> bool {
    manifest.is_some_and(|text| disk::read(&directory.join(MANIFEST_FILE)).is_ok_and(|it| it == text.as_bytes()))
}

impl VersionStore for MirroredVersions {
    fn names(&self) -> Result<Vec<String>, StoreError> {
        self.remote.names()
    }

    fn versions(&self, name: &str) -> Result<Vec<u64>, StoreError> {
        self.remote.versions(name)
    }

    fn local_directory(&self, name: &str, version: u64) -> Result<PathBuf, StoreError> {
        let directory = self.local.directory(name, version);
        if !directory.is_dir()
            && let Some(index) = self.remote.index(name, version)?
        {
            self.fetch(name, version, &index)?;
        }
        Ok(directory)
    }

    fn manifest(&self, name: &str, version: u64) -> Result<ManifestSource, StoreError> {
        match self.local.directory(name, version) {
            directory if directory.is_dir() => Ok(ManifestSource::Directory(directory)),
            _ => self.remote.manifest(name, version),
        }
    }

    fn sync_versions(&self, _: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn begin(&self, name: &str) -> Result<Box<dyn VersionDraft + '_>, StoreError> {
        StagedDraft::begin(self, name, None)
    }

    fn stage(&self, name: &str) -> Result<StagedVersion, StoreError> {
        self.local.stage(name)
    }

    fn begin_staged<'a>(
        &'a self,
        name: &str,
        staged: &'a StagedVersion,
    ) -> Result<Box<dyn VersionDraft + 'a>, StoreError> {
        StagedDraft::begin(self, name, Some(staged))
    }

    fn remove(&self, name: &str, version: u64) -> Result<bool, StoreError> {
        let removed = self.remote.remove(name, version)?;
        Ok(self.remove_copy(name, version)? || removed)
    }

    fn remove_rest(&self, name: &str) -> Result<(), StoreError> {
        self.remote.remove_rest(name)?;
        self.local.remove_rest(name)
    }
}

impl DirectoryCommit for MirroredVersions {
    fn commit_staged(&self, name: &str, staged: &StagedVersion) -> Result<u64, StoreError> {
        let committed = self.remote.commit_directory(name, staged.path(), None)?;
        let (version, index) = committed.expect("the next number is not taken");
        // From here on the version exists. Without its copy, this machine fetches it like the others.
        let copied = self.record_copy(name, version, index.id());
        let copied = copied.and_then(|()| self.local.install(name, version, staged.path()));
        log_failure(&(name.to_owned(), version), copied.map(drop));
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::objects::{BlockingObjects, ObjectStorage};
    use crate::versions::tests::publish_file;

    /// Two machines with one bucket.
    struct TestMirrors {
        directory: tempfile::TempDir,
        _runtime: tokio::runtime::Runtime,
        mirrors: [MirroredVersions; 2],
    }

    impl TestMirrors {
        fn new() -> TestMirrors {
            let directory = tempfile::tempdir().unwrap();
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
            let store = Arc::new(InMemory::new());
            let mirrors = ["a", "b"].map(|machine| {
                let objects = ObjectStorage::from_store(Arc::clone(&store) as _);
                let objects = BlockingObjects::new(objects, runtime.handle().clone());
                let root = directory.path().join(machine);
                fs::create_dir(&root).unwrap();
                MirroredVersions::new(ObjectVersions::new(objects, "models", root.join(".fetched")), &root)
            });
            TestMirrors { directory, _runtime: runtime, mirrors }
        }

        fn synchronize(&self, at: usize) -> MirrorChanges {
            self.mirrors[at].synchronize(&|dir| dir.join(MANIFEST_FILE).exists()).unwrap()
        }

        fn path(&self, path: &str) -> PathBuf {
            self.directory.path().join(path)
        }

        /// Makes a version by hand.
        fn copy(&self, path: &str, manifest: &str) {
            fs::create_dir_all(self.path(path)).unwrap();
            fs::write(self.path(path).join("plugin.wasm"), "wasm").unwrap();
            fs::write(self.path(path).join(MANIFEST_FILE), manifest).unwrap();
        }
    }

    fn key(version: u64) -> (String, u64) {
        ("m".to_owned(), version)
    }

    #[test]
    fn published_versions_appear_on_every_machine_and_removed_ones_vanish() {
        let it = TestMirrors::new();
        assert_eq!(publish_file(&it.mirrors[0], "m").unwrap().version, 1);
        assert!(it.path("a/m/1/file").exists(), "the publisher has it at once");
        assert_eq!(it.synchronize(0), MirrorChanges::default());
        assert_eq!(it.synchronize(1), MirrorChanges { fetched: vec![key(1)], ..MirrorChanges::default() });
        assert_eq!(fs::read(it.path("b/m/1/file")).unwrap(), b"x");
        assert_eq!(it.synchronize(1), MirrorChanges::default());
        assert_eq!(publish_file(&it.mirrors[1], "m").unwrap().version, 2);
        // Without waiting for the synchronization, a version is fetched when it is used.
        assert!(!it.mirrors[0].is_gone("m", 2) && it.mirrors[0].is_gone("m", 3));
        assert!(it.mirrors[0].local_directory("m", 2).unwrap().join("file").exists());
        assert!(it.mirrors[0].remove("m", 1).unwrap());
        assert!(!it.path("a/m/1").exists() && it.path("b/m/1").exists());
        assert_eq!(it.synchronize(1), MirrorChanges { removed: vec![key(1)], ..MirrorChanges::default() });
        assert!(!it.path("b/m/1").exists() && it.mirrors[1].is_gone("m", 1));
        assert_eq!(publish_file(&it.mirrors[1], "m").unwrap().version, 3);
    }

    #[test]
    fn a_version_that_was_copied_by_hand_is_published_once_under_its_number() {
        let it = TestMirrors::new();
        fs::create_dir_all(it.path("a/m/5")).unwrap();
        assert_eq!(it.synchronize(0), MirrorChanges::default(), "the copy is not complete");
        it.copy("a/m/5", "five");
        let published = MirrorChanges { published: vec![key(5)], ..MirrorChanges::default() };
        assert_eq!((it.synchronize(0), it.synchronize(0)), (published, MirrorChanges::default()));
        // The other machine was given the same files.
        it.copy("b/m/5", "five");
        assert_eq!(it.synchronize(1), MirrorChanges::default());
        assert_eq!(publish_file(&it.mirrors[1], "m").unwrap().version, 6);
    }

    #[test]
    fn a_directory_under_a_number_that_was_used_is_renamed() {
        let it = TestMirrors::new();
        publish_file(&it.mirrors[0], "m").unwrap();
        publish_file(&it.mirrors[0], "m").unwrap();
        assert!(it.mirrors[0].remove("m", 1).unwrap());
        it.copy("b/m/1", "removed");
        it.copy("b/m/2", "other");
        let changes = it.synchronize(1);
        let aside = [1, 2].map(|version| it.path(&format!("b/m/{version}.before-sharing"))).to_vec();
        assert_eq!(changes, MirrorChanges { fetched: vec![key(2)], set_aside: aside, ..MirrorChanges::default() });
        assert_eq!(fs::read(it.path("b/m/2.before-sharing/manifest.json")).unwrap(), b"other");
        assert_eq!(it.mirrors[1].local.versions("m").unwrap(), [2]);
    }

    #[test]
    fn a_fetch_that_was_interrupted_before_its_record_is_completed() {
        let it = TestMirrors::new();
        publish_file(&it.mirrors[0], "m").unwrap();
        it.synchronize(1);
        fs::remove_dir_all(it.path("b/m/1")).unwrap();
        assert_eq!(it.synchronize(1).fetched, [key(1)], "the record was written, and the directory was not renamed");
        fs::remove_dir_all(it.path("b/.mirrored")).unwrap();
        fs::create_dir_all(it.path("b/m/.staged-dead")).unwrap();
        it.copy("a/m/7", "seven");
        it.synchronize(0);
        it.synchronize(1);
        assert!(it.path("b/m/7").exists());
    }
}
