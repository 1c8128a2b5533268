//! Disk usage by kind of data, and the storage quota.
//!
//! Sizes are file sizes, as `ls` shows them: the sum is the space that deleting everything would free. Counting them is
//! elsewhere (`directory_size`).
//!
//! Deliberately elsewhere: how often usage is measured, and which writes are refused (`jobs`, `serve`).

use std::fs;
use std::path::Path;

use crate::directory_size::{linked_tree_bytes, list_entries, tree_bytes};
use crate::error::StoreError;
use crate::logged_items::LOGGED_FOLDER;
use crate::outputs::OUTPUT_FOLDER;
use crate::state_dir::StateDir;
pub use crate::storage_kind::{StorageKind, StorageQuota, StorageUsage};

/// The folder of checkpoints in the object store.
const CHECKPOINTS: &str = "checkpoints";

impl StateDir {
    /// Returns the bytes of each kind. `models` is the directory of model versions, which can be outside the state
    /// directory. Blocks, for about as long as `du` takes.
    ///
    /// # Errors
    /// Returns `Io` if a directory cannot be listed.
    pub fn usage(&self, models: &Path) -> Result<StorageUsage, StoreError> {
        let mut usage = self.usage_without_cache(models)?;
        usage.add(StorageKind::Cache, linked_tree_bytes(&self.cache())?);
        if self.bucket_usage().is_some() {
            usage.add(StorageKind::Cache, linked_tree_bytes(models)?);
        }
        Ok(usage)
    }

    /// Returns the same as [`StorageUsage::total`] of [`usage`](Self::usage) without walking the cache, which can be
    /// large. For quota checks before a write. Blocks.
    ///
    /// # Errors
    /// Returns `Io` if a directory cannot be listed.
    pub fn stored_bytes(&self, models: &Path) -> Result<u64, StoreError> {
        let added = self.bucket_usage().map_or(0, |bucket| bucket.added());
        Ok(self.usage_without_cache(models)?.total().saturating_add(added))
    }

    /// Records that this process is about to store bytes, if they are not counted by looking at the directory.
    pub fn note_stored(&self, bytes: u64) {
        if let Some(bucket) = self.bucket_usage() {
            bucket.add(bytes);
        }
    }

    /// Returns the bytes of each kind except the cache.
    fn usage_without_cache(&self, models: &Path) -> Result<StorageUsage, StoreError> {
        let mut usage = StorageUsage::default();
        usage.add(StorageKind::Datasets, linked_tree_bytes(&self.datasets())? + linked_tree_bytes(&self.uploads())?);
        match self.bucket_usage() {
            // The directory has copies of what is in the bucket.
            Some(bucket) => bucket.add_to(&mut usage),
            None => usage.add(StorageKind::Models, linked_tree_bytes(models)?),
        }
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
mod bucket_tests;
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
}
