//! What keys used of their quotas, written now and then: an account that may be a little old, not a ledger.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::clock::UnixMillis;
use crate::durable;
use crate::error::StoreError;

/// What one key used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUsage {
    /// When the day or month began that is counted.
    pub since_ms: UnixMillis,
    /// Requests since then.
    pub requests: u64,
}

/// The file of what keys used, by the keys' identifiers.
#[derive(Clone, Debug)]
pub struct KeyUsageFile {
    path: PathBuf,
}

impl KeyUsageFile {
    /// The file at `path`, which need not exist: then nothing was used.
    pub fn new(path: impl Into<PathBuf>) -> KeyUsageFile {
        KeyUsageFile { path: path.into() }
    }

    /// What it says. One that cannot be understood says that nothing was used, for it is written anew at any time.
    ///
    /// # Errors
    /// `Io`.
    pub fn read(&self) -> Result<BTreeMap<String, KeyUsage>, StoreError> {
        match crate::regular_file::read(&self.path, crate::limits::MANIFEST_BYTES_MAX) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(StoreError::io(&self.path)(error)),
        }
    }

    /// Replaces what it says.
    ///
    /// # Errors
    /// `Io`.
    pub fn write(&self, used: &BTreeMap<String, KeyUsage>) -> Result<(), StoreError> {
        let text = serde_json::to_string(used).expect("numbers under text are JSON");
        durable::replace(&self.path, text.as_bytes()).map_err(StoreError::io(&self.path))
    }
}
