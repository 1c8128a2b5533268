//! Reserves storage for an attempt's files and records under the server's limit on stored bytes. If the limit is
//! reached, the write fails but the training continues: the last good checkpoint is kept.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use saggar_store::bucket_usage::BucketCount;
use saggar_store::{StateDir, StorageQuota, StoreError};

/// How long a count of the stored bytes is used, because other processes write and remove files.
const COUNT_AGE_MAX: Duration = Duration::from_secs(5);

/// A guard of the storage limit.
#[derive(Debug)]
pub(crate) struct StorageGuard {
    quota: Option<StorageQuota>,
    home: StateDir,
    models_dir: PathBuf,
    last_count: Option<(Instant, u64)>,
}

impl StorageGuard {
    pub(crate) fn new(limit_bytes: Option<u64>, home: StateDir, models_dir: PathBuf) -> StorageGuard {
        StorageGuard {
            quota: limit_bytes.map(|limit_bytes| StorageQuota { limit_bytes }),
            home,
            models_dir,
            last_count: None,
        }
    }

    /// Returns the newest count of the bytes in the bucket, or `None` if they do not count.
    pub(crate) fn bucket_count(&self) -> Option<BucketCount> {
        self.quota.and(self.home.bucket_usage()).map(|usage| usage.count())
    }

    /// Reserves `bytes` bytes that are about to be written.
    ///
    /// # Errors
    /// `QuotaExceeded`; `Io` if the stored bytes cannot be counted.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<(), StoreError> {
        let Some(quota) = self.quota else { return Ok(()) };
        let used = match self.last_count {
            Some((at, used)) if at.elapsed() < COUNT_AGE_MAX => used,
            _ => self.home.stored_bytes(&self.models_dir)?,
        };
        let refused = quota.check(used, bytes);
        if refused.is_ok() {
            self.home.note_stored(bytes);
        }
        // After a refusal the bytes are counted again the next time, because files may have been removed.
        self.last_count = refused.is_ok().then(|| (Instant::now(), used.saturating_add(bytes)));
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_store_refuses_reservations_until_space_is_freed() {
        let directory = tempfile::tempdir().unwrap();
        let home = StateDir::open(directory.path()).unwrap();
        home.job_files().write_output("j", "a.bin", &[0; 1000]).unwrap();
        let mut room = StorageGuard::new(Some(1500), home.clone(), home.models());
        room.reserve(400).unwrap();
        let refused = room.reserve(400).unwrap_err();
        assert!(matches!(refused, StoreError::QuotaExceeded { limit: 1500, wanted: 400, .. }), "{refused}");
        home.job_files().remove("j").unwrap();
        room.reserve(400).unwrap();
        StorageGuard::new(None, home.clone(), home.models()).reserve(u64::MAX).unwrap();
    }
}
