//! Writes a version as a bundle, as a reader of its bytes.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

use super::{BLOCK, BUNDLE_FORMAT, BundleIndex, INDEX_ENTRY, entry_header};
use crate::digest::Digest;
use crate::error::{ModelError, StoreError};
use crate::models::manifest::MANIFEST_BYTES_MAX;
use crate::models::{CARD_FILE, MANIFEST_FILE, PLUGIN_FILE, VersionFiles, WEIGHTS_FILE};
use crate::regular_file;

/// A version as a bundle, to be read in pieces. The same version of the same model gives the same bytes.
pub struct BundleStream {
    bytes: u64,
    pieces: Box<dyn Read + Send>,
}

impl std::fmt::Debug for BundleStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BundleStream").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl BundleStream {
    /// Returns the bundle's size in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.bytes
    }

    fn then(self, bytes: u64, piece: impl Read + Send + 'static) -> BundleStream {
        BundleStream { bytes: self.bytes + bytes, pieces: Box::new(self.pieces.chain(piece)) }
    }

    /// Appends an entry whose bytes are in memory.
    fn with_entry(self, name: &str, content: Vec<u8>) -> BundleStream {
        let bytes = content.len() as u64;
        self.with_content(name, bytes, Cursor::new(content))
    }

    fn with_content(self, name: &str, bytes: u64, content: impl Read + Send + 'static) -> BundleStream {
        let header = entry_header(name, bytes).as_bytes().to_vec();
        let padding = bytes.next_multiple_of(BLOCK as u64) - bytes;
        self.then(BLOCK as u64, Cursor::new(header)).then(bytes, content).then(padding, io::repeat(0).take(padding))
    }

    /// Appends a file of the version.
    fn with_file(self, dir: &Path, name: &str, bytes: u64) -> Result<BundleStream, ModelError> {
        let path = dir.join(name);
        let file: File = regular_file::open(&path).map_err(StoreError::io(&path))?;
        Ok(self.with_content(name, bytes, file.take(bytes)))
    }
}

impl Read for BundleStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.pieces.read(buffer)
    }
}

impl VersionFiles {
    /// Returns the version as a bundle that names `model`. The files are open, so that a removal of the version does
    /// not truncate it.
    ///
    /// # Errors
    /// Returns `Store` if a file cannot be read.
    pub fn to_bundle(&self, model: &str) -> Result<BundleStream, ModelError> {
        let path = self.dir.join(MANIFEST_FILE);
        let manifest = regular_file::read(&path, MANIFEST_BYTES_MAX).map_err(StoreError::io(&path))?;
        let index = BundleIndex { format: BUNDLE_FORMAT, model: model.to_owned(), manifest: Digest::of(&manifest) };
        let index = serde_json::to_vec(&index).expect("an index is plain data");
        let empty = BundleStream { bytes: 0, pieces: Box::new(io::empty()) };
        let mut bundle = empty.with_entry(INDEX_ENTRY, index).with_entry(MANIFEST_FILE, manifest);
        for name in [PLUGIN_FILE, WEIGHTS_FILE, CARD_FILE] {
            if let Some(file) = self.manifest.file(name) {
                bundle = bundle.with_file(&self.dir, name, file.bytes)?;
            }
        }
        let end = 2 * BLOCK as u64;
        Ok(bundle.then(end, io::repeat(0).take(end)))
    }
}
