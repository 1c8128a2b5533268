//! Resource limits of each key's jobs, read from the key file. The file is checked whenever the queue is, so a change
//! applies from the next decision on.

use std::collections::BTreeMap;

use saggar_store::KeyFile;
use saggar_store::keys::{FileStamp, KeyRecord};

use crate::scheduler_config::ResourceQuota;

/// The key file and its last content.
#[derive(Debug)]
pub(crate) struct KeyLimits {
    keys: KeyFile,
    /// `None` before the first read.
    stamp: Option<FileStamp>,
}

impl KeyLimits {
    pub(crate) fn new(keys: KeyFile) -> KeyLimits {
        KeyLimits { keys, stamp: None }
    }

    /// Returns the limits of keys if the file may have changed since the last read, else `None`. A file that cannot be
    /// read changes nothing.
    pub(crate) fn reload_if_changed(&mut self) -> Option<BTreeMap<String, ResourceQuota>> {
        let stamp = self.keys.stamp();
        if self.stamp == Some(stamp) {
            return None;
        }
        let records = match self.keys.read() {
            Ok(records) => records,
            Err(error) => {
                tracing::error!(%error, "the key file cannot be read; the limits of keys stay unchanged");
                return None;
            }
        };
        self.stamp = Some(stamp);
        let allowance = |key: KeyRecord| {
            let gpu_seconds = key.gpu_seconds.map(|seconds| seconds as f64);
            (key.name, ResourceQuota { max_running_jobs: key.max_running_jobs, gpu_seconds })
        };
        Some(records.into_iter().map(allowance).collect())
    }
}

#[cfg(test)]
mod tests {
    use saggar_store::{KeyScope, NewKey};

    use super::*;

    #[test]
    fn key_limits_follow_the_key_file() {
        let directory = tempfile::tempdir().unwrap();
        let keys = KeyFile::new(directory.path().join("keys.json"));
        let mut owners = KeyLimits::new(keys.clone());
        assert_eq!(owners.reload_if_changed(), Some(BTreeMap::new()));
        assert_eq!(owners.reload_if_changed(), None);
        let key = NewKey {
            name: "ci".to_owned(),
            scopes: vec![KeyScope::JobsWrite],
            projects: None,
            rate: None,
            quota: None,
            max_running_jobs: Some(8),
            gpu_seconds: Some(60),
            expires_ms: None,
        };
        keys.create(key, 1).unwrap();
        let allowed = ResourceQuota { max_running_jobs: Some(8), gpu_seconds: Some(60.0) };
        assert_eq!(owners.reload_if_changed(), Some(BTreeMap::from([("ci".to_owned(), allowed)])));
        std::fs::write(directory.path().join("keys.json"), "no keys").unwrap();
        assert_eq!(owners.reload_if_changed(), None);
    }
}
