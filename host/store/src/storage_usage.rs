//! Disk usage by kind of data, and the storage quota.
//!
//! Sizes are file sizes, as `ls` shows them: the sum is the space that deleting everything would free. Counting them is
//! elsewhere (`directory_size`).
//!
//! Deliberately elsewhere: how often usage is measured, and which writes are refused (`jobs`, `serve`).

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::directory_size::{linked_tree_bytes, list_entries, tree_bytes};
use crate::error::StoreError;
use crate::logged_items::LOGGED_FOLDER;
use crate::outputs::OUTPUT_FOLDER;
use crate::state_dir::StateDir;

/// The folder of checkpoints in the object store.
const CHECKPOINTS: &str = "checkpoints";

/// A kind of stored data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageKind {
    /// Dataset versions, and unfinished uploads of datasets.
    Datasets,
    /// Checkpoints of jobs.
    Checkpoints,
    /// Files that jobs wrote, and items that they logged.
    Outputs,
    /// Logs of attempts.
    Logs,
    /// Model versions.
    Models,
    /// Uploaded components.
    Plugins,
    /// Records of jobs and of external runs.
    Records,
    /// Data that can be recreated at any time. It does not count towards a limit.
    Cache,
}

impl StorageKind {
    /// Every kind, in the order of listings.
    pub const ALL: [StorageKind; 8] = [
        StorageKind::Datasets,
        StorageKind::Checkpoints,
        StorageKind::Outputs,
        StorageKind::Logs,
        StorageKind::Models,
        StorageKind::Plugins,
        StorageKind::Records,
        StorageKind::Cache,
    ];

    /// Returns the name that users see, such as `checkpoints`.
    pub const fn name(self) -> &'static str {
        match self {
            StorageKind::Datasets => "datasets",
            StorageKind::Checkpoints => "checkpoints",
            StorageKind::Outputs => "outputs",
            StorageKind::Logs => "logs",
            StorageKind::Models => "models",
            StorageKind::Plugins => "plugins",
            StorageKind::Records => "records",
            StorageKind::Cache => "cache",
        }
    }
}

/// Bytes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageUsage {
    bytes: [u64; StorageKind::ALL.len()],
}

impl StorageUsage {
    /// Returns the bytes of a kind.
    pub fn bytes_of(&self, kind: StorageKind) -> u64 {
        self.bytes[kind as usize]
    }

    /// Returns every kind with its bytes, in the order of listings.
    pub fn iter(&self) -> impl Iterator<Item = (StorageKind, u64)> {
        StorageKind::ALL.into_iter().map(|kind| (kind, self.bytes_of(kind)))
    }

    /// Returns the bytes that count towards a limit: all but the cache.
    pub fn total(&self) -> u64 {
        let counted = self.iter().filter(|(kind, _)| *kind != StorageKind::Cache);
        counted.fold(0, |sum, (_, bytes)| sum.saturating_add(bytes))
    }

    fn add(&mut self, kind: StorageKind, bytes: u64) {
        let sum = &mut self.bytes[kind as usize];
        *sum = sum.saturating_add(bytes);
    }
}

/// The limit on stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageQuota {
    /// The limit on [`StorageUsage::total`].
    pub limit_bytes: u64,
}

impl StorageQuota {
    /// Checks whether `wanted` bytes can be added to `used`.
    ///
    /// # Errors
    /// Returns `QuotaExceeded` if the sum would exceed the limit.
    pub fn check(&self, used: u64, wanted: u64) -> Result<(), StoreError> {
        if used.checked_add(wanted).is_some_and(|sum| sum <= self.limit_bytes) {
            return Ok(());
        }
        Err(StoreError::QuotaExceeded { limit: self.limit_bytes, used, wanted })
    }
}

impl StateDir {
    /// Returns the bytes of each kind. `models` is the directory of model versions, which can be outside the state
    /// directory. Blocks, for about as long as `du` takes.
    ///
    /// # Errors
    /// Returns `Io` if a directory cannot be listed.
    pub fn usage(&self, models: &Path) -> Result<StorageUsage, StoreError> {
        let mut usage = self.usage_without_cache(models)?;
        usage.add(StorageKind::Cache, linked_tree_bytes(&self.cache())?);
        Ok(usage)
    }

    /// Returns the same as [`StorageUsage::total`] of [`usage`](Self::usage) without walking the cache, which can be
    /// large. For quota checks before a write. Blocks.
    ///
    /// # Errors
    /// Returns `Io` if a directory cannot be listed.
    pub fn stored_bytes(&self, models: &Path) -> Result<u64, StoreError> {
        Ok(self.usage_without_cache(models)?.total())
    }

    /// Returns the bytes of each kind except the cache.
    fn usage_without_cache(&self, models: &Path) -> Result<StorageUsage, StoreError> {
        let mut usage = StorageUsage::default();
        usage.add(StorageKind::Datasets, linked_tree_bytes(&self.datasets())? + linked_tree_bytes(&self.uploads())?);
        usage.add(StorageKind::Models, linked_tree_bytes(models)?);
        for entry in list_entries(&self.objects())? {
            let is_checkpoints = entry.file_name() == CHECKPOINTS;
            let kind = if is_checkpoints { StorageKind::Checkpoints } else { StorageKind::Plugins };
            usage.add(kind, linked_tree_bytes(&entry.path())?);
        }
        for job in list_entries(&self.jobs())? {
            for entry in list_entries(&job.path())? {
                let is_output = entry.file_name() == OUTPUT_FOLDER || entry.file_name() == LOGGED_FOLDER;
                let kind = if is_output { StorageKind::Outputs } else { StorageKind::Logs };
                usage.add(kind, tree_bytes(&entry.path())?);
            }
        }
        for database in [self.database(), self.external_runs()] {
            for suffix in ["", "-wal", "-shm"] {
                let mut file = database.clone().into_os_string();
                file.push(suffix);
                usage.add(StorageKind::Records, fs::metadata(file).map_or(0, |data| data.len()));
            }
        }
        Ok(usage)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::directory_size::counts_as_empty;

    #[test]
    fn every_file_is_counted_under_its_storage_kind() {
        let directory = tempfile::tempdir().unwrap();
        let home = StateDir::open(directory.path().join("home")).unwrap();
        let models = directory.path().join("models");
        assert_eq!(home.usage(&models).unwrap(), StorageUsage::default());
        let write = |path: std::path::PathBuf, bytes: usize| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![0; bytes]).unwrap();
        };
        write(home.datasets().join("d/1/x.bin"), 1);
        write(home.uploads().join("u/chunks/c"), 2);
        write(home.objects().join("checkpoints/j/parts/p"), 4);
        write(home.objects().join("checkpoints/j/1-1.json"), 8);
        write(home.job("j").join("output/a/b"), 10);
        write(home.job("j").join("logged/00000000000000000001-a.png"), 6);
        write(home.job("j").join("attempt-1.log"), 32);
        write(models.join("m/1/plugin.wasm"), 64);
        write(home.objects().join("blobs/sha256/ab/abc"), 128);
        write(home.objects().join("plugins/abc.json"), 256);
        write(home.database(), 512);
        write(home.cache().join("c"), 1024);
        std::os::unix::fs::symlink(home.database(), home.job("j").join("output/link")).unwrap();
        let usage = home.usage(&models).unwrap();
        let found: Vec<_> = usage.iter().map(|(kind, bytes)| format!("{} {bytes}", kind.name())).collect();
        let expected =
            "datasets 3, checkpoints 12, outputs 16, logs 32, models 64, plugins 384, records 512, cache 1024";
        assert_eq!(found.join(", "), expected);
        assert_eq!(usage.total(), 1023);
        assert_eq!(home.stored_bytes(&models).unwrap(), 1023);
    }

    #[test]
    fn unreadable_directories_count_as_empty() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let home = StateDir::open(directory.path().join("home")).unwrap();
        let disk = directory.path().join("disk");
        let lost = disk.join("lost+found");
        fs::create_dir_all(&lost).unwrap();
        fs::write(lost.join("1"), "x").unwrap();
        fs::write(disk.join("2"), "xy").unwrap();
        fs::remove_dir(home.datasets())
            .or_else(|error| if counts_as_empty(&error) { Ok(()) } else { Err(error) })
            .unwrap();
        std::os::unix::fs::symlink(&disk, home.datasets()).unwrap();
        fs::set_permissions(&lost, fs::Permissions::from_mode(0o000)).unwrap();
        // Permissions do not restrict root.
        let expected = if fs::read_dir(&lost).is_ok() { 3 } else { 2 };
        assert_eq!(home.usage(&disk.join("models")).unwrap().bytes_of(StorageKind::Datasets), expected);
        assert_eq!(home.stored_bytes(&disk.join("models")).unwrap(), expected);
        assert!(counts_as_empty(&io::ErrorKind::PermissionDenied.into()));
        assert!(!counts_as_empty(&io::ErrorKind::OutOfMemory.into()));
        fs::set_permissions(&lost, fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_write_past_the_quota_is_refused_with_a_hint() {
        let quota = StorageQuota { limit_bytes: 10 << 30 };
        quota.check(0, 10 << 30).unwrap();
        let error = quota.check(9_900_000_000, 1 << 30).unwrap_err();
        assert_eq!(
            error.to_string(),
            "quota-exceeded: 1073741824 bytes more would not fit: 9900000000 of 10737418240 are used; raise \
             --storage-quota, or make room with `saggar gc`"
        );
        assert!(quota.check(u64::MAX, u64::MAX).is_err());
        StorageQuota { limit_bytes: u64::MAX }.check(u64::MAX, 0).unwrap();
    }
}
