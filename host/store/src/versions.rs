//! Directories of immutable versions: `<root>/<name>/<number>/`.
//!
//! A version is built under a hidden name, synced, renamed into place and synced again, while a lock on the name is
//! held. So a numbered version is always complete, and two processes never use the same number.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use crate::durable::{self, disk};
use crate::error::StoreError;
use crate::limits::{NAME_BYTES_MAX, PUT_TRIES_MAX};
use crate::projects;

/// The rule that [`is_name`] checks, as text.
pub(crate) const NAME_RULE: &str = "must have 1 to 63 lower-case letters, digits, `.`, `_` or \
    `-`, beginning with a letter or digit";

/// Returns whether this is a valid name of a model, dataset or project: a directory name on every system, never a path.
pub(crate) fn is_name(name: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= NAME_BYTES_MAX
        && name.bytes().next().is_some_and(alphanumeric)
        && name.bytes().all(|byte| alphanumeric(byte) || b"._-".contains(&byte))
}

/// Returns the version that a directory's name means: a decimal number from 1, without leading zeros.
pub(crate) fn parse_version(name: &str) -> Option<u64> {
    let version = name.parse::<u64>().ok()?;
    (version > 0 && version.to_string() == name).then_some(version)
}

/// A root directory of named, numbered versions.
#[derive(Clone, Debug)]
pub(crate) struct VersionDirectories {
    root: PathBuf,
}

/// Prefix of the names of directories in which versions are prepared.
const STAGING_PREFIX: &str = ".staged-";

/// A directory in which a version is prepared.
#[derive(Debug)]
pub(crate) struct StagedVersion {
    path: PathBuf,
    /// The parent directory, which has the version's name.
    directory: PathBuf,
    /// The lock that marks the directory as in use.
    lock: Option<File>,
}

impl StagedVersion {
    /// Returns the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StagedVersion {
    fn drop(&mut self) {
        if self.path.is_dir() {
            let _ = disk::remove_tree(&self.path);
            // Also removes the name's directory if this would have been its first version.
            let _ = disk::remove_directory(&self.directory);
        }
    }
}

/// A version that [`VersionDirectories::publish`] created or found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedVersion {
    pub(crate) version: u64,
    /// Whether it was created by this call.
    pub(crate) is_new: bool,
}

impl VersionDirectories {
    pub(crate) fn new(root: impl Into<PathBuf>) -> VersionDirectories {
        VersionDirectories { root: root.into() }
    }

    pub(crate) fn directory(&self, name: &str, version: u64) -> PathBuf {
        self.root.join(name).join(version.to_string())
    }

    /// Makes the existing versions of a name durable, because their creator may have died before syncing them.
    pub(crate) fn sync_versions(&self, name: &str) -> Result<(), StoreError> {
        let directory = self.root.join(name);
        disk::sync_directory(&directory).map_err(StoreError::io(&directory))
    }

    /// Creates a directory below the root, durably.
    pub(crate) fn create_directory(&self, directory: &Path) -> Result<(), StoreError> {
        durable::create_directories_below(&self.root, directory).map_err(StoreError::io(directory))
    }

    /// Returns every name that has a directory, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>, StoreError> {
        let mut names = list_names(&self.root)?;
        names.retain(|name| is_name(name) && self.root.join(name).is_dir());
        names.sort();
        Ok(names)
    }

    /// Returns the versions of a name in ascending order; empty if the name does not exist.
    pub(crate) fn versions(&self, name: &str) -> Result<Vec<u64>, StoreError> {
        let directory = self.root.join(name);
        let mut versions: Vec<u64> = list_names(&directory)?
            .iter()
            .filter(|entry| directory.join(entry).is_dir())
            .filter_map(|entry| parse_version(entry))
            .collect();
        versions.sort_unstable();
        Ok(versions)
    }

    /// Creates the next version of `name`, unless `find` finds it among the existing versions.
    ///
    /// `fill` writes and syncs files into an empty directory. If it fails, nothing is left behind. A number is never
    /// reused, even if its directory was deleted.
    pub(crate) fn publish<E: From<StoreError>>(
        &self,
        name: &str,
        find: impl FnOnce(&[u64]) -> Result<Option<u64>, E>,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PlacedVersion, E> {
        let mut lock = NameLock::acquire(&self.root, name)?;
        let directory = self.root.join(name);
        // The lock is held, so unfinished directories are leftovers of processes that died.
        for stale in list_names(&directory)?.iter().filter(|entry| entry.starts_with(".tmp-")) {
            let stale = directory.join(stale);
            disk::remove_tree(&stale).map_err(StoreError::io(&stale))?;
        }
        let versions = self.versions(name)?;
        if let Some(version) = find(&versions)? {
            self.sync_versions(name)?;
            return Ok(PlacedVersion { version, is_new: false });
        }
        self.create_directory(&directory)?;
        let staging = directory.join(format!(".tmp-{}", durable::unique_suffix()));
        let filled = disk::make_directory(&staging).map_err(StoreError::io(&staging)).map_err(E::from);
        let filled = filled.and_then(|()| fill(&staging));
        let placed = filled.and_then(|()| self.install(&mut lock, name, &versions, &staging));
        if placed.is_err() {
            let _ = disk::remove_tree(&staging);
            // Also removes the name's directory if this would have been its first version.
            let _ = disk::remove_directory(&directory);
        }
        placed
    }

    /// Creates a directory in which the next version of `name` is prepared, without holding the name's lock, for as
    /// long as that takes. Dropping the returned value removes it, unless [`publish_staged`](Self::publish_staged) made
    /// it a version.
    pub(crate) fn stage(&self, name: &str) -> Result<StagedVersion, StoreError> {
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

    /// Makes a staged directory the next version of `name`, unless `find` finds it among the existing versions.
    /// `complete` writes and syncs the missing files.
    pub(crate) fn publish_staged<E: From<StoreError>>(
        &self,
        name: &str,
        staged: &StagedVersion,
        find: impl FnOnce(&[u64]) -> Result<Option<u64>, E>,
        complete: impl FnOnce() -> Result<(), E>,
    ) -> Result<PlacedVersion, E> {
        let mut lock = NameLock::acquire(&self.root, name)?;
        let versions = self.versions(name)?;
        if let Some(version) = find(&versions)? {
            self.sync_versions(name)?;
            return Ok(PlacedVersion { version, is_new: false });
        }
        complete()?;
        self.install(&mut lock, name, &versions, &staged.path)
    }

    /// Removes a version; returns `false` if it does not exist. Its number is not reused, and processes that have its
    /// files open can still read them.
    pub(crate) fn remove(&self, name: &str, version: u64) -> Result<bool, StoreError> {
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
            projects::forget(&self.root, name)?;
        }
        Ok(true)
    }

    /// Removes the other files in the directory of a name that has no versions left. Does nothing if it has versions.
    pub(crate) fn remove_rest(&self, name: &str) -> Result<(), StoreError> {
        let _lock = NameLock::acquire(&self.root, name)?;
        let directory = self.root.join(name);
        if !self.versions(name)?.is_empty() || !directory.is_dir() {
            return Ok(());
        }
        disk::remove_tree(&directory).map_err(StoreError::io(&directory))?;
        disk::sync_directory(&self.root).map_err(StoreError::io(&self.root))?;
        projects::forget(&self.root, name)
    }

    /// Runs `f` while no other process creates or removes a version of a name.
    pub(crate) fn with_name_lock<T, E: From<StoreError>>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let _lock = NameLock::acquire(&self.root, name)?;
        work()
    }

    fn install<E: From<StoreError>>(
        &self,
        lock: &mut NameLock,
        name: &str,
        versions: &[u64],
        staging: &Path,
    ) -> Result<PlacedVersion, E> {
        disk::sync_directory(staging).map_err(StoreError::io(staging))?;
        let last = versions.last().copied().unwrap_or(0).max(lock.last);
        let version = last.saturating_add(1);
        lock.record(version)?;
        let target = self.directory(name, version);
        disk::rename(staging, &target).map_err(StoreError::io(&target))?;
        let directory = self.root.join(name);
        disk::sync_directory(&directory).map_err(StoreError::io(&directory))?;
        Ok(PlacedVersion { version, is_new: true })
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

    fn publish(versions: &VersionDirectories, name: &str) -> Result<PlacedVersion, StoreError> {
        versions.publish(
            name,
            |_| Ok(None),
            |directory| {
                let path = directory.join("file");
                durable::write_new(&path, b"x").map_err(StoreError::io(&path))
            },
        )
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

    #[test]
    fn version_numbers_are_used_once() {
        let directory = tempfile::tempdir().unwrap();
        let versions = VersionDirectories::new(directory.path());
        assert_eq!(publish(&versions, "m").unwrap().version, 1);
        assert_eq!(publish(&versions, "m").unwrap().version, 2);
        fs::remove_dir_all(versions.directory("m", 2)).unwrap();
        assert_eq!(publish(&versions, "m").unwrap().version, 3);
        fs::create_dir(versions.directory("m", 9)).unwrap();
        assert_eq!(publish(&versions, "m").unwrap().version, 10);
        assert_eq!(versions.versions("m").unwrap(), [1, 3, 9, 10]);
        assert!(versions.remove("m", 10).unwrap() && !versions.remove("m", 10).unwrap());
        fs::write(directory.path().join(".locks/m"), "").unwrap();
        assert!(versions.remove("m", 9).unwrap() && !versions.remove("other", 1).unwrap());
        assert_eq!(publish(&versions, "m").unwrap().version, 10, "the record was lost, and 9 was there to be seen");
        for version in [1, 3, 10] {
            assert!(versions.remove("m", version).unwrap());
        }
        assert_eq!(versions.names().unwrap(), Vec::<String>::new());
        assert_eq!(publish(&versions, "m").unwrap().version, 11);
        assert_eq!(versions.names().unwrap(), ["m"]);
    }

    #[test]
    fn a_failed_publication_leaves_nothing_and_crash_leftovers_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let versions = VersionDirectories::new(directory.path());
        let fail = versions.publish(
            "m",
            |_| Ok(None),
            |staging| {
                fs::write(staging.join("half"), "x").unwrap();
                Err(StoreError::NotFound { name: "x".to_owned() })
            },
        );
        assert!(matches!(fail, Err(StoreError::NotFound { .. })));
        assert!(!directory.path().join("m").exists());
        fs::create_dir_all(directory.path().join("m/.tmp-dead")).unwrap();
        assert_eq!(publish(&versions, "m").unwrap().version, 1);
        assert_eq!(list_names(&directory.path().join("m")).unwrap(), ["1"]);
    }

    #[test]
    fn concurrent_publishers_get_different_version_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let versions = VersionDirectories::new(directory.path());
        let mut got: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| publish(&versions, "m").unwrap().version)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        got.sort_unstable();
        assert_eq!(got, [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
