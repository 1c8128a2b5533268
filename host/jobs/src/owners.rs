//! What the jobs of each key may use, as the file of keys says. The file is looked at whenever the queue is: a change holds
//! from the next decision on.

use std::collections::BTreeMap;

use saggar_store::KeyFile;
use saggar_store::keys::{KeyRecord, Stamp};

use crate::layout::Allowance;

/// The file, and what it said last.
#[derive(Debug)]
pub(crate) struct Owners {
    keys: KeyFile,
    /// None before the first look.
    stamp: Option<Stamp>,
}

impl Owners {
    pub(crate) fn new(keys: KeyFile) -> Owners {
        Owners { keys, stamp: None }
    }

    /// What keys allow, where that may have changed since the last look. A file that cannot be read changes nothing.
    pub(crate) fn changed(&mut self) -> Option<BTreeMap<String, Allowance>> {
        let stamp = self.keys.stamp();
        if self.stamp == Some(stamp) {
            return None;
        }
        let records = match self.keys.read() {
            Ok(records) => records,
            Err(error) => {
                tracing::error!(%error, "limits of keys stay as they were");
                return None;
            }
        };
        self.stamp = Some(stamp);
        let allowance = |key: KeyRecord| {
            let gpu_seconds = key.gpu_seconds.map(|seconds| seconds as f64);
            (key.name, Allowance { max_running_jobs: key.max_running_jobs, gpu_seconds })
        };
        Some(records.into_iter().map(allowance).collect())
    }
}

#[cfg(test)]
mod tests {
    use saggar_store::{NewKey, Scope};

    use super::*;

    #[test]
    fn limits_are_those_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let keys = KeyFile::new(directory.path().join("keys.json"));
        let mut owners = Owners::new(keys.clone());
        assert_eq!(owners.changed(), Some(BTreeMap::new()));
        assert_eq!(owners.changed(), None);
        let key = NewKey {
            name: "ci".to_owned(),
            scopes: vec![Scope::JobsWrite],
            projects: None,
            rate: None,
            quota: None,
            max_running_jobs: Some(8),
            gpu_seconds: Some(60),
            expires_ms: None,
        };
        keys.create(key, 1).unwrap();
        let allowed = Allowance { max_running_jobs: Some(8), gpu_seconds: Some(60.0) };
        assert_eq!(owners.changed(), Some(BTreeMap::from([("ci".to_owned(), allowed)])));
        std::fs::write(directory.path().join("keys.json"), "no keys").unwrap();
        assert_eq!(owners.changed(), None);
    }
}
