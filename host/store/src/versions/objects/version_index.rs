//! The index of a version in an object store: which files it has, and where their bytes are.

use std::io;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::StoreError;

/// The index of a version.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct VersionIndex {
    /// The folder of the parts, whose last component no other version has.
    pub(crate) parts: String,
    pub(crate) files: Vec<IndexedFile>,
    /// The content of the version's manifest, unless it is large, so that listings read only indexes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) manifest: Option<String>,
}

/// A file of a version.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IndexedFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) parts: Vec<IndexedPart>,
}

/// A part of a file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IndexedPart {
    /// Its name in the folder of the parts.
    pub(crate) name: String,
    pub(crate) sha256: Digest,
}

impl VersionIndex {
    /// Parses the object of this name.
    ///
    /// # Errors
    /// Returns `Io` if it is no index, or names files outside of a version's directory.
    pub(crate) fn parse(object: &str, text: &[u8]) -> Result<VersionIndex, StoreError> {
        let parsed = serde_json::from_slice(text).map_err(|error| error.to_string());
        let parsed = parsed.and_then(|index: VersionIndex| match index.has_plain_names() {
            true => Ok(index),
            false => Err("it names files outside of the version".to_owned()),
        });
        parsed.map_err(|reason| StoreError::io(object)(io::Error::new(io::ErrorKind::InvalidData, reason)))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an index is plain data")
    }

    /// Returns the name that only this version has.
    pub(crate) fn id(&self) -> &str {
        self.parts.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }

    fn has_plain_names(&self) -> bool {
        let is_plain = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
        is_plain(self.id()) && self.files.iter().all(|file| is_plain(&file.name))
    }
}
