//! Bundles: one file with a version of a model, to copy it to other servers.
//!
//! A bundle is an uncompressed tar archive (ustar) with these entries in this order:
//!
//! ```text
//! bundle.json          {"format": 1, "model": NAME, "manifest": SHA-256 of manifest.json}
//! manifest.json        the version's manifest, which has the sizes and digests of the files that follow
//! plugin.wasm
//! weights.safetensors
//! card.md              only if the version has a card
//! ```
//!
//! A version has exactly one bundle: headers have fixed modes, owners and times, and nothing follows the end of the
//! archive. So the reader compares whole headers, and an archive with links, folders, other names, repeated entries or
//! hidden bytes is refused. Nothing is decompressed, and nothing is copied or stored before everything is verified.

mod bundle_reader;
mod bundle_writer;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::manifest::ModelManifest;
use super::{CARD_FILE, MANIFEST_FILE, ModelRegistry, PLUGIN_FILE, PublishedVersion, WEIGHTS_FILE, check_name};
use crate::checkpoint::SavedVariable;
use crate::digest::Digest;
use crate::error::ModelError;

pub use bundle_writer::BundleStream;

/// The version of the bundle format that this build writes and reads.
pub const BUNDLE_FORMAT: u64 = 1;
/// The name of a bundle's first entry.
const INDEX_ENTRY: &str = "bundle.json";
/// The entries of a bundle, in order.
const ENTRIES: [&str; 5] = [INDEX_ENTRY, MANIFEST_FILE, PLUGIN_FILE, WEIGHTS_FILE, CARD_FILE];
/// Bytes of a block of a tar archive.
const BLOCK: usize = 512;
/// Limit on the bytes of `bundle.json`, which has three short members.
const INDEX_BYTES_MAX: usize = 4 << 10;

/// The content of `bundle.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BundleIndex {
    format: u64,
    model: String,
    manifest: Digest,
}

/// A bundle whose content was verified. Its parts share the bytes of the file.
#[derive(Clone, Debug)]
pub struct ModelBundle {
    /// The name of the model that it was exported from.
    pub model: String,
    /// The manifest of the version.
    pub manifest: ModelManifest,
    /// The manifest as text, which an import stores unchanged.
    manifest_text: Bytes,
    plugin: Bytes,
    weights: Bytes,
    card: Option<Bytes>,
    variables: Vec<SavedVariable>,
}

impl ModelBundle {
    /// Returns the plugin's component.
    pub fn plugin(&self) -> &Bytes {
        &self.plugin
    }

    /// Returns the weights, sorted by name.
    pub fn variables(&self) -> &[SavedVariable] {
        &self.variables
    }
}

impl ModelRegistry {
    /// Creates a version of `model` from a bundle, with the same manifest and files, unless a version with the same
    /// publication exists. The version is durable when this returns.
    ///
    /// # Errors
    /// Returns `BadName`; `Store`.
    pub fn publish_bundle(&self, model: &str, bundle: &ModelBundle) -> Result<PublishedVersion, ModelError> {
        check_name(model)?;
        let files = [(PLUGIN_FILE, &bundle.plugin[..]), (WEIGHTS_FILE, &bundle.weights[..])];
        let files = files.into_iter().chain(bundle.card.as_ref().map(|card| (CARD_FILE, &card[..])));
        let files = files.chain([(MANIFEST_FILE, &bundle.manifest_text[..])]);
        self.place_version(model, &bundle.manifest, files)
    }
}

/// Returns the header of an entry. Every entry has the same mode, owner and time, so that a version has one bundle.
fn entry_header(name: &str, bytes: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_path(name).expect("the names of entries are short");
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_cksum();
    header
}
