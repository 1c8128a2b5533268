//! Storage usage and the check against the server's storage limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use saggar_store::StoreError;
use saggar_store::storage_usage::StorageUsage;

use crate::app_parts::AppParts;
use crate::limits::LOGGED_BYTES_UNCHECKED_MAX;

/// The maximum age of a count for the metrics page. Counting walks every directory.
const COUNT_AGE_MAX: Duration = Duration::from_secs(15);

impl AppParts {
    /// Counts the stored bytes by kind. Call it from a blocking thread.
    ///
    /// # Errors
    /// Returns `Io` if a directory cannot be listed.
    pub(crate) fn count_storage(&self) -> Result<StorageUsage, StoreError> {
        let usage = self.home.usage(&self.models_dir)?;
        let families = &self.metrics.families;
        for (kind, bytes) in usage.iter() {
            families.storage_bytes.with_label_values(&[kind.name()]).set(bytes as f64);
        }
        if let Some(quota) = self.storage_quota {
            families.storage_quota_bytes.with_label_values::<&str>(&[]).set(quota.limit_bytes as f64);
        }
        Ok(usage)
    }

    /// Checks whether `bytes` more can be stored. Call it from a blocking thread.
    ///
    /// # Errors
    /// Returns `QuotaExceeded` with the limit, the usage and a hint, or `Io` if the usage cannot be determined.
    pub(crate) fn check_storage_quota(&self, bytes: u64) -> Result<(), StoreError> {
        self.check_storage_quota_after(0, bytes)
    }

    /// Checks like [`check_storage_quota`](Self::check_storage_quota), if `going` of the stored bytes are about to be
    /// removed.
    ///
    /// # Errors
    /// Returns the same errors.
    pub(crate) fn check_storage_quota_after(&self, going: u64, bytes: u64) -> Result<(), StoreError> {
        let Some(quota) = self.storage_quota else { return Ok(()) };
        quota.check(self.home.stored_bytes(&self.models_dir)?.saturating_sub(going), bytes)?;
        self.home.note_stored(bytes);
        Ok(())
    }
}

/// Counts the bytes that clients log, so that the quota is checked now and then and not at each value.
#[derive(Debug, Default)]
pub(crate) struct LoggedBytes(AtomicU64);

impl LoggedBytes {
    /// Adds bytes. Returns whether the quota is to be checked before they are stored.
    pub(crate) fn add(&self, bytes: u64) -> bool {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        let steps = |bytes: u64| bytes.div_ceil(LOGGED_BYTES_UNCHECKED_MAX);
        steps(before.wrapping_add(bytes)) != steps(before)
    }
}

/// The time of the last count for the metrics page.
#[derive(Debug, Default)]
pub(crate) struct StorageCounter(Mutex<Option<Instant>>);

impl StorageCounter {
    /// Counts again if the last count is old. If counting fails, keeps the old values and logs a warning.
    pub(crate) fn refresh_if_old(&self, parts: &AppParts) {
        let mut counted = self.0.lock();
        if counted.is_some_and(|at| at.elapsed() < COUNT_AGE_MAX) {
            return;
        }
        *counted = Some(Instant::now());
        if let Err(error) = parts.count_storage() {
            tracing::warn!(%error, "the stored bytes cannot be counted");
        }
    }
}
