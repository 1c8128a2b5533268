//! Usage of keys' quotas, saved now and then. It can be slightly outdated: it is an estimate, not a ledger.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use saggar_clock::UnixMillis;
use serde::{Deserialize, Serialize};

use crate::durable;
use crate::error::StoreError;

/// The usage of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUsage {
    /// The start of the current day or month.
    pub since_ms: UnixMillis,
    /// The number of requests since then.
    pub requests: u64,
}

/// The file of all keys' usage, by key identifier.
#[derive(Clone, Debug)]
pub struct KeyUsageFile {
    path: PathBuf,
}

impl KeyUsageFile {
    /// Returns the store of the file at `path`. A missing file means no usage.
    pub fn new(path: impl Into<PathBuf>) -> KeyUsageFile {
        KeyUsageFile { path: path.into() }
    }

    /// Returns the content of the file. A file that cannot be parsed counts as no usage, because it is rewritten at any
    /// time.
    ///
    /// # Errors
    /// Returns `Io`.
    pub fn read(&self) -> Result<BTreeMap<String, KeyUsage>, StoreError> {
        match crate::regular_file::read(&self.path, crate::limits::MANIFEST_BYTES_MAX) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(StoreError::io(&self.path)(error)),
        }
    }

    /// Replaces the content of the file.
    ///
    /// # Errors
    /// Returns `Io`.
    pub fn write(&self, used: &BTreeMap<String, KeyUsage>) -> Result<(), StoreError> {
        let text = serde_json::to_string(used).expect("numbers under text are JSON");
        durable::replace(&self.path, text.as_bytes()).map_err(StoreError::io(&self.path))
    }
}
