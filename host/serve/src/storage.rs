//! How much is stored, and room for more under the server's limit.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use saggar_store::StoreError;
use saggar_store::storage_usage::StorageUsage;

use crate::app::AppParts;

/// How long a count holds for the metrics page: counting walks every directory.
const COUNT_AGE_MAX: Duration = Duration::from_secs(15);

impl AppParts {
    /// Bytes by kind as they are now. Call from a thread that may block.
    ///
    /// # Errors
    /// `Io` where a directory cannot be listed.
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

    /// Whether so many bytes more may be kept. Call from a thread that may block.
    ///
    /// # Errors
    /// `QuotaExceeded`, with the limit, what is used and what to change; `Io` where nobody can tell.
    pub(crate) fn check_storage_quota(&self, bytes: u64) -> Result<(), StoreError> {
        self.check_storage_quota_after(0, bytes)
    }

    /// As [`check_storage_quota`](Self::room), where `going` bytes of what is stored are about to go.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn check_storage_quota_after(&self, going: u64, bytes: u64) -> Result<(), StoreError> {
        let Some(quota) = self.storage_quota else { return Ok(()) };
        quota.check(self.home.stored_bytes(&self.models_dir)?.saturating_sub(going), bytes)
    }
}

/// When what is stored was counted for the metrics page.
#[derive(Debug, Default)]
pub(crate) struct StorageCounter(Mutex<Option<Instant>>);

impl StorageCounter {
    /// Counts anew where the last count is old. What cannot be counted stays as it was, and the log says so.
    pub(crate) fn refresh_if_old(&self, parts: &AppParts) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.is_some_and(|at| at.elapsed() < COUNT_AGE_MAX) {
            return;
        }
        *counted = Some(Instant::now());
        if let Err(error) = parts.count_storage() {
            tracing::warn!(%error, "what is stored cannot be counted");
        }
    }
}
