//! Room for what an attempt writes, and for what is recorded of it, under the server's limit on stored bytes. Full, it
//! refuses the write and not the training: the last good checkpoint stays.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use saggar_store::{Home, StorageQuota, StoreError};

/// How long a count of what is stored holds: others write, and things are removed.
const COUNT_AGE_MAX: Duration = Duration::from_secs(5);

/// What may still be written.
#[derive(Debug)]
pub(crate) struct Room {
    quota: Option<StorageQuota>,
    home: Home,
    models_dir: PathBuf,
    counted: Option<(Instant, u64)>,
}

impl Room {
    pub(crate) fn new(limit_bytes: Option<u64>, home: Home, models_dir: PathBuf) -> Room {
        Room { quota: limit_bytes.map(|limit_bytes| StorageQuota { limit_bytes }), home, models_dir, counted: None }
    }

    /// Takes room for so many bytes, which are about to be written.
    ///
    /// # Errors
    /// `QuotaExceeded`; `Io` where nobody can tell how much is stored.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), StoreError> {
        let Some(quota) = self.quota else { return Ok(()) };
        let used = match self.counted {
            Some((at, used)) if at.elapsed() < COUNT_AGE_MAX => used,
            _ => self.home.stored_bytes(&self.models_dir)?,
        };
        let refused = quota.check(used, bytes);
        // Refused, it is counted anew the next time: somebody may have made room.
        self.counted = refused.is_ok().then(|| (Instant::now(), used.saturating_add(bytes)));
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_store_refuses_until_there_is_room() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::open(directory.path()).unwrap();
        home.write_output("j", "a.bin", &[0; 1000]).unwrap();
        let mut room = Room::new(Some(1500), home.clone(), home.models());
        room.take(400).unwrap();
        let refused = room.take(400).unwrap_err();
        assert!(matches!(refused, StoreError::QuotaExceeded { limit: 1500, wanted: 400, .. }), "{refused}");
        home.remove_job("j").unwrap();
        room.take(400).unwrap();
        Room::new(None, home.clone(), home.models()).take(u64::MAX).unwrap();
    }
}
