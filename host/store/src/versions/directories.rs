//! Directories of immutable versions: `<root>/<name>/<number>/`.
//!
//! A version is built under a hidden name, synced, renamed into place and synced again, while a lock on the name is
//! held. So a numbered version is always complete, and two processes never use the same number.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::publication_fence::{PendingPublication, PublicationFence};
use super::{StagedVersion, VersionDraft, VersionStore, is_name, parse_version};
use crate::durable::{self, disk};
use crate::error::StoreError;
use crate::limits::PUT_TRIES_MAX;

/// A root directory of named, numbered versions.
#[derive(Clone, Debug)]
pub(crate) struct VersionDirectories {
    root: PathBuf,
    /// Decides whether a new version may become visible, if somebody does.
    fence: Option<Arc<dyn PublicationFence>>,
}

/// Prefix of the names of directories in which versions are prepared.
const STAGING_PREFIX: &str = ".staged-";

impl VersionDirectories {
    pub(crate) fn new(root: impl Into<PathBuf>) -> VersionDirectories {
        VersionDirectories { root: root.into(), fence: None }
    }

    /// Asks `fence` before a version becomes visible, if there is one.
    pub(crate) fn with_fence(self, fence: Option<Arc<dyn PublicationFence>>) -> VersionDirectories {
        VersionDirectories { fence, ..self }
    }

    pub(crate) fn directory(&self, name: &str, version: u64) -> PathBuf {
        self.root.join(name).join(version.to_string())
    }

    /// Creates a directory below the root, durably.
    pub(crate) fn create_directory(&self, directory: &Path) -> Result<(), StoreError> {
        durable::create_directories_below(&self.root, directory).map_err(StoreError::io(directory))
    }

    /// Returns the path of the file that assigns a name to projects. Its content is defined in `projects`; it is removed
    /// with the name's last version.
    pub(crate) fn projects_path(&self, name: &str) -> PathBuf {
        self.root.join(".projects").join(name)
    }

    /// Removes the file that assigns a name to projects, if it exists.
    pub(crate) fn remove_projects_file(&self, name: &str) -> Result<(), StoreError> {
        let path = self.projects_path(name);
        if !path.exists() {
            return Ok(());
        }
        disk::remove_file(&path).map_err(StoreError::io(&path))
    }

    /// Makes a directory below the root the version of this number, durably, unless the version exists. Returns whether it
    /// did not.
    pub(crate) fn install(&self, name: &str, version: u64, directory: &Path) -> Result<bool, StoreError> {
        let mut lock = NameLock::acquire(&self.root, name)?;
        let target = self.directory(name, version);
        if target.exists() {
            return Ok(false);
        }
        disk::sync_directory(directory).map_err(StoreError::io(directory))?;
        if lock.last < version {
            lock.record(version)?;
        }
        self.create_directory(&self.root.join(name))?;
        disk::rename(directory, &target).map_err(StoreError::io(&target))?;
        self.sync_versions(name).map(|()| true)
    }

    /// Renames a version's directory, so that it is not a version any more, and returns its new path.
    pub(crate) fn set_aside(&self, name: &str, version: u64) -> Result<PathBuf, StoreError> {
        let _lock = NameLock::acquire(&self.root, name)?;
        let directory = self.directory(name, version);
        let mut aside = directory.with_added_extension("before-sharing");
        if aside.exists() {
            aside.add_extension(durable::unique_suffix());
        }
        disk::rename(&directory, &aside).map_err(StoreError::io(&directory))?;
        Ok(aside)
    }

    /// Runs `work` while no other process creates or removes a version of a name.
    pub(crate) fn with_name_lock<T, E: From<StoreError>>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let _lock = NameLock::acquire(&self.root, name)?;
        work()
    }
}

impl VersionStore for VersionDirectories {
    fn names(&self) -> Result<Vec<String>, StoreError> {
        let mut names = list_names(&self.root)?;
        names.retain(|name| is_name(name) && self.root.join(name).is_dir());
        names.sort();
        Ok(names)
    }

    fn versions(&self, name: &str) -> Result<Vec<u64>, StoreError> {
        let directory = self.root.join(name);
        let mut versions: Vec<u64> = list_names(&directory)?
            .iter()
            .filter(|entry| directory.join(entry).is_dir())
            .filter_map(|entry| parse_version(entry))
            .collect();
        versions.sort_unstable();
        Ok(versions)
    }

    fn local_directory(&self, name: &str, version: u64) -> Result<PathBuf, StoreError> {
        Ok(self.directory(name, version))
    }

    fn sync_versions(&self, name: &str) -> Result<(), StoreError> {
        let directory = self.root.join(name);
        disk::sync_directory(&directory).map_err(StoreError::io(&directory))
    }

    /// Holds the name's lock until the draft is committed or dropped.
    fn begin(&self, name: &str) -> Result<Box<dyn VersionDraft + '_>, StoreError> {
        let lock = NameLock::acquire(&self.root, name)?;
        let directory = self.root.join(name);
        // The lock is held, so unfinished directories are leftovers of processes that died.
        for stale in list_names(&directory)?.iter().filter(|entry| entry.starts_with(".tmp-")) {
            let stale = directory.join(stale);
            disk::remove_tree(&stale).map_err(StoreError::io(&stale))?;
        }
        let versions = self.versions(name)?;
        Ok(Box::new(DirectoryDraft { store: self, name: name.to_owned(), lock, versions, staging: Staging::None }))
    }

    fn stage(&self, name: &str) -> Result<StagedVersion, StoreError> {
        let _lock = NameLock::acquire(&self.root, name)?;
        let directory = self.root.join(name);
        for entry in list_names(&directory)?.iter().filter(|entry| entry.starts_with(STAGING_PREFIX)) {
            // Its creator locks it while preparing the version.
            let path = directory.join(entry);
            if File::open(&path).is_ok_and(|dead| dead.try_lock().is_ok()) {
                disk::remove_tree(&path).map_err(StoreError::io(&path))?;
            }
        }
        let path = directory.join(format!("{STAGING_PREFIX}{}", durable::unique_suffix()));
        for tries in 1.. {
            self.create_directory(&directory)?;
            match disk::make_directory(&path) {
                // A failed publication has just removed the empty directory of the name.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < PUT_TRIES_MAX => {}
                made => {
                    made.map_err(StoreError::io(&path))?;
                    break;
                }
            }
        }
        let staged = StagedVersion { lock: File::open(&path).ok(), path, directory };
        if let Some(lock) = &staged.lock {
            // On a file system without directory locks, no staged directory is considered abandoned.
            let _ = lock.try_lock();
        }
        Ok(staged)
    }

    /// Holds the name's lock until the draft is committed or dropped.
    fn begin_staged<'a>(
        &'a self,
        name: &str,
        staged: &'a StagedVersion,
    ) -> Result<Box<dyn VersionDraft + 'a>, StoreError> {
        let lock = NameLock::acquire(&self.root, name)?;
        let versions = self.versions(name)?;
        let staging = Staging::Caller(staged.path.clone());
        Ok(Box::new(DirectoryDraft { store: self, name: name.to_owned(), lock, versions, staging }))
    }

    fn remove(&self, name: &str, version: u64) -> Result<bool, StoreError> {
        let target = self.directory(name, version);
        if !target.is_dir() {
            return Ok(false);
        }
        let mut lock = NameLock::acquire(&self.root, name)?;
        if lock.last < version {
            lock.record(version)?;
        }
        // Renaming it away first is atomic: a version exists whole or not at all. The next sweep of unfinished
        // directories removes leftovers of a crash.
        let directory = self.root.join(name);
        let gone = directory.join(format!(".tmp-{}", durable::unique_suffix()));
        match disk::rename(&target, &gone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            renamed => renamed.map_err(StoreError::io(&target))?,
        }
        disk::sync_directory(&directory).map_err(StoreError::io(&directory))?;
        disk::remove_tree(&gone).map_err(StoreError::io(&gone))?;
        // Succeeds only if this was the last version.
        let _ = disk::remove_directory(&directory);
        if self.versions(name)?.is_empty() {
            self.remove_projects_file(name)?;
        }
        Ok(true)
    }

    /// Removes the other files in the directory of the name.
    fn remove_rest(&self, name: &str) -> Result<(), StoreError> {
        let _lock = NameLock::acquire(&self.root, name)?;
        let directory = self.root.join(name);
        if !self.versions(name)?.is_empty() || !directory.is_dir() {
            return Ok(());
        }
        disk::remove_tree(&directory).map_err(StoreError::io(&directory))?;
        disk::sync_directory(&self.root).map_err(StoreError::io(&self.root))?;
        self.remove_projects_file(name)
    }
}

/// Where a draft's files are.
#[derive(Debug)]
enum Staging {
    /// Nowhere yet, or they have become the version.
    None,
    /// In a directory that the draft created and removes.
    Own(PathBuf),
    /// In a directory that the caller created and removes.
    Caller(PathBuf),
}

/// A version that is being created.
#[derive(Debug)]
struct DirectoryDraft<'a> {
    store: &'a VersionDirectories,
    name: String,
    lock: NameLock,
    versions: Vec<u64>,
    staging: Staging,
}

impl VersionDraft for DirectoryDraft<'_> {
    fn versions(&self) -> &[u64] {
        &self.versions
    }

    fn directory(&mut self) -> Result<PathBuf, StoreError> {
        if let Staging::Caller(path) = &self.staging {
            return Ok(path.clone());
        }
        let directory = self.store.root.join(&self.name);
        self.store.create_directory(&directory)?;
        let path = directory.join(format!(".tmp-{}", durable::unique_suffix()));
        self.staging = Staging::Own(path.clone());
        disk::make_directory(&path).map_err(StoreError::io(&path))?;
        Ok(path)
    }

    fn commit(mut self: Box<Self>) -> Result<u64, StoreError> {
        let (Staging::Own(staging) | Staging::Caller(staging)) = &self.staging else {
            unreachable!("`directory` is called before `commit`");
        };
        disk::sync_directory(staging).map_err(StoreError::io(staging))?;
        let last = self.versions.last().copied().unwrap_or(0).max(self.lock.last);
        let version = last.saturating_add(1);
        self.lock.record(version)?;
        if let Some(fence) = &self.store.fence {
            fence.register(&PendingPublication {
                id: durable::random_hex::<16>(),
                model: self.name.clone(),
                version,
            })?;
        }
        let target = self.store.directory(&self.name, version);
        disk::rename(staging, &target).map_err(StoreError::io(&target))?;
        let directory = self.store.root.join(&self.name);
        disk::sync_directory(&directory).map_err(StoreError::io(&directory))?;
        self.staging = Staging::None;
        Ok(version)
    }
}

impl Drop for DirectoryDraft<'_> {
    fn drop(&mut self) {
        if let Staging::Own(staging) = &self.staging {
            let _ = disk::remove_tree(staging);
            // Also removes the name's directory if this would have been its first version.
            let _ = disk::remove_directory(&self.store.root.join(&self.name));
        }
    }
}

/// Returns the names in a directory; empty if it does not exist.
fn list_names(directory: &Path) -> Result<Vec<String>, StoreError> {
    let listing = match fs::read_dir(directory) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io(directory)(error)),
    };
    let name = |entry: io::Result<fs::DirEntry>| match entry {
        Ok(entry) => entry.file_name().into_string().ok().map(Ok),
        Err(error) => Some(Err(StoreError::io(directory)(error))),
    };
    listing.filter_map(name).collect()
}

/// The exclusive right to create versions of a name, and the highest number used so far. The file is never deleted and
/// is beside the names' directories, so that all processes lock the same file.
#[derive(Debug)]
struct NameLock {
    file: File,
    path: PathBuf,
    last: u64,
}

impl NameLock {
    fn acquire(root: &Path, name: &str) -> Result<NameLock, StoreError> {
        let locks = root.join(".locks");
        durable::create_directories_below(root, &locks).map_err(StoreError::io(&locks))?;
        let path = locks.join(name);
        let open = || {
            match disk::create_file(&path, 0o666) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            file.lock()?;
            let mut text = String::new();
            // Content that is not text, after a crash, means that the number is unknown.
            let _ = Read::take(&file, 32).read_to_string(&mut text);
            Ok((file, text.trim().parse().unwrap_or(0)))
        };
        let (file, last) = open().map_err(StoreError::io(&path))?;
        Ok(NameLock { file, path, last })
    }

    fn record(&mut self, version: u64) -> Result<(), StoreError> {
        self.last = version;
        let mut file = &self.file;
        let mut write = || {
            file.rewind()?;
            // The number only grows, so no digit of the old one can remain.
            durable::write_and_sync(file, &self.path, &[version.to_string()])?;
            // The file's creator may have died before its name was durable.
            self.path.parent().map_or(Ok(()), disk::sync_directory)
        };
        write().map_err(StoreError::io(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::tests::publish_file;

    #[test]
    fn numbers_of_deleted_and_copied_directories_are_not_used_again() {
        let directory = tempfile::tempdir().unwrap();
        let versions = VersionDirectories::new(directory.path());
        assert_eq!(publish_file(&versions, "m").unwrap().version, 1);
        assert_eq!(publish_file(&versions, "m").unwrap().version, 2);
        fs::remove_dir_all(versions.directory("m", 2)).unwrap();
        assert_eq!(publish_file(&versions, "m").unwrap().version, 3);
        fs::create_dir(versions.directory("m", 9)).unwrap();
        assert_eq!(publish_file(&versions, "m").unwrap().version, 10);
        assert_eq!(versions.versions("m").unwrap(), [1, 3, 9, 10]);
        assert!(versions.remove("m", 10).unwrap() && !versions.remove("m", 10).unwrap());
        fs::write(directory.path().join(".locks/m"), "").unwrap();
        assert!(versions.remove("m", 9).unwrap() && !versions.remove("other", 1).unwrap());
        assert_eq!(
            publish_file(&versions, "m").unwrap().version,
            10,
            "the record was lost, and 9 was there to be seen"
        );
        for version in [1, 3, 10] {
            assert!(versions.remove("m", version).unwrap());
        }
        assert_eq!(versions.names().unwrap(), Vec::<String>::new());
        assert_eq!(publish_file(&versions, "m").unwrap().version, 11);
        assert_eq!(versions.names().unwrap(), ["m"]);
    }

    #[test]
    fn leftovers_of_a_killed_publisher_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let versions = VersionDirectories::new(directory.path());
        fs::create_dir_all(directory.path().join("m/.tmp-dead")).unwrap();
        assert_eq!(publish_file(&versions, "m").unwrap().version, 1);
        assert_eq!(list_names(&directory.path().join("m")).unwrap(), ["1"]);
    }
}
