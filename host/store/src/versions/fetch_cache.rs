//! Directories that were fetched from an object store: versions, and outputs of jobs.
//!
//! ```text
//! <root>/<id>/        the files of a version, under a name that nothing else has
//! <root>/.staged-*/   a version that is being fetched or prepared; its process has locked it
//! <root>/.lock-*      the right to fetch versions, so that processes do not fetch the same one twice
//! ```
//!
//! The cache is bounded: the least recently used versions are removed, but none that a process has pinned.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::directory_size::tree_bytes;
use crate::durable::{self, disk};
use crate::error::StoreError;
use crate::limits::{DISK_RESERVE_BYTES, FETCHED_AGE_MIN};
use crate::versions::StagedVersion;

/// Prefix of the names of directories that are being written.
const STAGING_PREFIX: &str = ".staged-";
/// Number of locks. Two versions can have the same one, and are then fetched one after the other.
const LOCKS: u64 = 64;

/// The fetched versions in one directory.
#[derive(Clone, Debug)]
pub(crate) struct FetchCache {
    root: PathBuf,
    bytes_max: u64,
}

impl FetchCache {
    /// Returns the cache in `root`, which keeps at most `bytes_max` bytes besides versions that are in use.
    pub(crate) fn new(root: PathBuf, bytes_max: u64) -> FetchCache {
        FetchCache { root, bytes_max }
    }

    /// Returns the directory of a version, which may not exist.
    pub(crate) fn directory(&self, id: &str) -> PathBuf {
        self.root.join(id)
    }

    /// Creates a directory in which a version is prepared. Dropping the result removes it.
    pub(crate) fn stage(&self) -> Result<StagedVersion, StoreError> {
        durable::create_directories(&self.root).map_err(StoreError::io(&self.root))?;
        let path = self.root.join(format!("{STAGING_PREFIX}{}", durable::random_hex::<8>()));
        disk::make_directory(&path).map_err(StoreError::io(&path))?;
        // The lock shows other processes that the directory is not abandoned. Some file systems have no locks.
        let lock = File::open(&path).ok().filter(|directory| directory.try_lock().is_ok());
        Ok(StagedVersion { lock, directory: path.clone(), path })
    }

    /// Returns the directory of a version. If it is not there, `fetch` writes and syncs its files, which have `bytes` bytes, into
    /// the given directory.
    pub(crate) fn get_or_fetch(
        &self,
        id: &str,
        bytes: u64,
        fetch: impl FnOnce(&Path) -> Result<(), StoreError>,
    ) -> Result<PathBuf, StoreError> {
        let directory = self.directory(id);
        if directory.is_dir() {
            self.touch(&directory);
            return Ok(directory);
        }
        let _lock = self.lock(id)?;
        if directory.is_dir() {
            // Another process has fetched it meanwhile.
            return Ok(directory);
        }
        self.make_room(bytes, SystemTime::now());
        let staged = self.stage()?;
        fetch(staged.path())?;
        self.install(&staged, id)
    }

    /// Waits for the right to fetch a version, which ends when the result is dropped.
    pub(crate) fn lock(&self, id: &str) -> Result<File, StoreError> {
        durable::create_directories(&self.root).map_err(StoreError::io(&self.root))?;
        let number = id.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte))) % LOCKS;
        let path = self.root.join(format!(".lock-{number}"));
        let open = || {
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(false).mode(durable::PRIVATE_FILE_MODE).open(&path)?;
            file.lock().map(|()| file)
        };
        open().map_err(StoreError::io(&path))
    }

    /// Makes a staged directory the version's, which exists as a whole or not at all.
    pub(crate) fn install(&self, staged: &StagedVersion, id: &str) -> Result<PathBuf, StoreError> {
        let target = self.directory(id);
        disk::sync_directory(staged.path()).map_err(StoreError::io(staged.path()))?;
        match disk::rename(staged.path(), &target) {
            // Another process has fetched the same files, on a file system without locks.
            Err(_) if target.is_dir() => Ok(target),
            renamed => renamed.map(|()| target.clone()).map_err(StoreError::io(&target)),
        }
    }

    /// Records a use of a version.
    pub(crate) fn touch(&self, directory: &Path) {
        // If this fails, the version is only removed earlier.
        let _ = File::open(directory).and_then(|directory| directory.set_modified(SystemTime::now()));
    }

    /// Pins a version until the result is dropped.
    pub(crate) fn pin(&self, directory: &Path) -> Option<File> {
        File::open(directory).ok().filter(|directory| directory.try_lock_shared().is_ok())
    }

    /// Removes a version.
    pub(crate) fn remove(&self, directory: &Path) {
        // Renamed first, so that no reader opens a part of it.
        let leaving = self.root.join(format!("{STAGING_PREFIX}{}", durable::random_hex::<8>()));
        if disk::rename(directory, &leaving).is_ok() {
            let _ = disk::remove_tree(&leaving);
        }
    }

    /// Removes what killed processes left, and the least recently used versions, until `bytes` more are within the limit and
    /// on the disk. What cannot be removed stays.
    pub(crate) fn make_room(&self, bytes: u64, now: SystemTime) {
        let age = |path: &Path| {
            let modified = fs::symlink_metadata(path).and_then(|data| data.modified()).ok();
            modified.and_then(|then| now.duration_since(then).ok()).unwrap_or(Duration::ZERO)
        };
        let mut versions = Vec::new();
        for (path, kind) in disk::list(&self.root).unwrap_or_default() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(STAGING_PREFIX) {
                if age(&path) > FETCHED_AGE_MIN && !is_locked(&path) {
                    let _ = disk::remove_tree(&path);
                }
            } else if kind.is_dir() {
                versions.push((age(&path), tree_bytes(&path).unwrap_or(0), path.clone()));
            }
        }
        versions.sort();
        let mut retained_bytes = versions.iter().map(|(_, bytes, _)| bytes).sum::<u64>().saturating_add(bytes);
        while let Some((age, freed, path)) = versions.pop() {
            let free = durable::free_bytes(&self.root).unwrap_or(u64::MAX);
            if age < FETCHED_AGE_MIN
                || (retained_bytes <= self.bytes_max && free >= bytes.saturating_add(DISK_RESERVE_BYTES))
            {
                return;
            }
            if !is_locked(&path) {
                self.remove(&path);
                retained_bytes = retained_bytes.saturating_sub(freed);
            }
        }
    }
}

/// Returns whether a process has locked the directory. Returns `false` on file systems without locks.
fn is_locked(directory: &Path) -> bool {
    File::open(directory).is_ok_and(|it| matches!(it.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(cache: &FetchCache, id: &str, age_s: u64) -> PathBuf {
        let staged = cache.stage().unwrap();
        fs::write(staged.path().join("column"), [0; 100]).unwrap();
        let path = cache.install(&staged, id).unwrap();
        let then = SystemTime::now() - Duration::from_secs(age_s);
        File::open(&path).unwrap().set_modified(then).unwrap();
        path
    }

    #[test]
    fn the_least_recently_used_versions_are_removed_but_none_that_is_pinned_or_new() {
        let directory = tempfile::tempdir().unwrap();
        let cache = FetchCache::new(directory.path().join("cache"), 250);
        let [oldest, old, used, new] =
            [("a", 4000), ("b", 3000), ("c", 2000), ("d", 0)].map(|(id, age_s)| install(&cache, id, age_s));
        let pin = cache.pin(&oldest).unwrap();
        cache.touch(&used);
        cache.make_room(100, SystemTime::now());
        assert!(oldest.exists() && !old.exists() && used.exists() && new.exists(), "pinned, removed, used, new");
        drop(pin);
        cache.make_room(100, SystemTime::now());
        assert!(!oldest.exists() && used.exists());
        cache.make_room(0, SystemTime::now() + Duration::from_secs(3600));
        assert!(used.exists() && new.exists(), "they are within the limit");
    }

    #[test]
    fn only_staged_directories_of_processes_that_are_gone_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let cache = FetchCache::new(directory.path().to_owned(), 250);
        let staged = cache.stage().unwrap();
        let abandoned = directory.path().join(".staged-dead");
        fs::create_dir(&abandoned).unwrap();
        cache.make_room(0, SystemTime::now());
        assert!(abandoned.exists(), "it can be new and not yet locked");
        cache.make_room(0, SystemTime::now() + Duration::from_secs(3600));
        assert!(!abandoned.exists() && staged.path().exists());
    }
}
