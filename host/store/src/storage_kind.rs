//! Kinds of stored data, their bytes, and the limit on them.

use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// A kind of stored data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

    pub(crate) fn add(&mut self, kind: StorageKind, bytes: u64) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
