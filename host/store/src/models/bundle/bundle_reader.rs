//! Reads and verifies a bundle, which is untrusted.

use bytes::Bytes;
use tar::EntryType;

use super::{BLOCK, BUNDLE_FORMAT, BundleIndex, ENTRIES, INDEX_BYTES_MAX, INDEX_ENTRY, ModelBundle, entry_header};
use crate::checkpoint::digest_of_variables;
use crate::digest::Digest;
use crate::error::BundleError;
use crate::format_number::read_format_number;
use crate::limits::CARD_BYTES_MAX;
use crate::models::manifest::{FORMAT, MANIFEST_BYTES_MAX, ManifestError, ModelManifest, parse_manifest};
use crate::models::{CARD_FILE, MANIFEST_FILE, PLUGIN_FILE, WEIGHTS_FILE, weights};
use crate::versions;

/// Characters of an entry's name in messages.
const NAME_SHOWN_MAX: usize = 80;
/// First bytes of compressed files, with the name of their format.
const COMPRESSED: [(&[u8], &str); 5] = [
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "Zstandard"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "ZIP"),
];

impl ModelBundle {
    /// Reads a bundle and verifies all of it: its form, sizes, digests, manifest and weights.
    ///
    /// # Errors
    /// Returns [`BundleError`], which names the entry at fault.
    pub fn read(file: &Bytes) -> Result<ModelBundle, BundleError> {
        let mut entries = EntryCursor { file, at: 0, next: 0 };
        let index_text = entries.require(INDEX_ENTRY, INDEX_BYTES_MAX as u64)?;
        let index = parse_index(&index_text)?;
        let manifest_text = entries.require(MANIFEST_FILE, MANIFEST_BYTES_MAX)?;
        check_digest(MANIFEST_FILE, &manifest_text, index.manifest)?;
        let manifest = parse_manifest(&manifest_text).map_err(|error| match error {
            ManifestError::Unreadable(reason) => BundleError::Entry { name: MANIFEST_FILE.to_owned(), reason },
            ManifestError::OtherFormat(found) => {
                BundleError::OtherFormat { what: MANIFEST_FILE, found, expected: FORMAT }
            }
        })?;
        let plugin = entries.require_listed(PLUGIN_FILE, &manifest, u64::MAX)?;
        let weights = entries.require_listed(WEIGHTS_FILE, &manifest, u64::MAX)?;
        let card = match manifest.file(CARD_FILE) {
            Some(_) => Some(entries.require_listed(CARD_FILE, &manifest, CARD_BYTES_MAX)?),
            None => None,
        };
        entries.finish()?;
        let bundle =
            ModelBundle { model: index.model, manifest, manifest_text, plugin, weights, card, variables: Vec::new() };
        bundle.verify_content()
    }

    /// Checks what the digests of the files do not cover: those of the manifest itself, the weights and the card's text.
    fn verify_content(mut self) -> Result<ModelBundle, BundleError> {
        let entry = |name: &str, reason: String| BundleError::Entry { name: name.to_owned(), reason };
        check_digest(PLUGIN_FILE, &self.plugin, self.manifest.plugin)?;
        if let Some(Err(error)) = self.card.as_ref().map(|card| std::str::from_utf8(card)) {
            return Err(entry(CARD_FILE, format!("it is not text: {error}")));
        }
        let variables = weights::decode(&self.weights, &self.manifest.statistics);
        self.variables = variables.map_err(|reason| entry(WEIGHTS_FILE, reason))?;
        let unknown = |name: &&String| !self.variables.iter().any(|variable| variable.name == **name);
        if let Some(name) = self.manifest.statistics.iter().find(unknown) {
            let name = shorten(name);
            return Err(entry(MANIFEST_FILE, format!("it lists the statistic {name}, which {WEIGHTS_FILE} lacks")));
        }
        let (found, expected) = (digest_of_variables(&self.variables), self.manifest.weights);
        if found != expected {
            return Err(entry(MANIFEST_FILE, format!("it says that the weights have digest {expected}, not {found}")));
        }
        Ok(self)
    }
}

fn parse_index(text: &[u8]) -> Result<BundleIndex, BundleError> {
    let refuse = |reason: String| BundleError::Entry { name: INDEX_ENTRY.to_owned(), reason };
    let format = read_format_number(text).map_err(|error| refuse(error.to_string()))?;
    if format != BUNDLE_FORMAT {
        return Err(BundleError::OtherFormat { what: INDEX_ENTRY, found: format, expected: BUNDLE_FORMAT });
    }
    let index: BundleIndex = serde_json::from_slice(text).map_err(|error| refuse(error.to_string()))?;
    if !versions::is_name(&index.model) {
        return Err(refuse(format!("the model's name {} {}", shorten(&index.model), versions::NAME_RULE)));
    }
    Ok(index)
}

fn check_digest(name: &str, bytes: &[u8], expected: Digest) -> Result<(), BundleError> {
    let found = Digest::of(bytes);
    if found == expected { Ok(()) } else { Err(BundleError::WrongDigest { name: name.to_owned(), expected, found }) }
}

/// The entries of an archive, read in order.
struct EntryCursor<'a> {
    file: &'a Bytes,
    at: usize,
    /// The number of entries read so far.
    next: usize,
}

impl EntryCursor<'_> {
    /// Returns the bytes of the next entry, which must have this name.
    fn require(&mut self, name: &'static str, bytes_max: u64) -> Result<Bytes, BundleError> {
        let Some(header) = self.header()? else { return Err(BundleError::Missing { name }) };
        let block = header.as_bytes();
        self.check_kind(&header)?;
        let bytes = header.entry_size().map_err(|error| self.refuse(&header, error.to_string()))?;
        if let Some(found) = entry_name(&header).filter(|found| found != name) {
            return Err(self.unexpected(&found, name));
        }
        if block != entry_header(name, bytes).as_bytes() {
            let reason = "its header is not the one that `saggar models export` writes".to_owned();
            return Err(self.refuse(&header, reason));
        }
        if bytes > bytes_max {
            return Err(self.refuse(&header, format!("it would have {bytes} bytes, and at most {bytes_max} are read")));
        }
        let start = self.at + BLOCK;
        let have = self.file.len() - start;
        let end = usize::try_from(bytes).ok().filter(|bytes| *bytes <= have).map(|bytes| start + bytes);
        let Some(end) = end else {
            return Err(BundleError::Truncated { name: name.to_owned(), expected: bytes, found: have as u64 });
        };
        let padded = end.next_multiple_of(BLOCK);
        let Some(padding) = self.file.get(end..padded) else {
            return Err(BundleError::Truncated { name: name.to_owned(), expected: bytes, found: have as u64 });
        };
        if padding.iter().any(|byte| *byte != 0) {
            return Err(self.refuse(&header, "bytes are hidden after it".to_owned()));
        }
        (self.at, self.next) = (padded, self.next + 1);
        Ok(self.file.slice(start..end))
    }

    /// Returns the bytes of the next entry, which must have this name, and the size and digest in the manifest.
    fn require_listed(
        &mut self,
        name: &'static str,
        manifest: &ModelManifest,
        bytes_max: u64,
    ) -> Result<Bytes, BundleError> {
        let bytes = self.require(name, bytes_max)?;
        let listed = manifest.file(name).ok_or(BundleError::Missing { name })?;
        let found = bytes.len() as u64;
        if found != listed.bytes {
            return Err(BundleError::WrongSize { name: name.to_owned(), expected: listed.bytes, found });
        }
        check_digest(name, &bytes, listed.sha256)?;
        Ok(bytes)
    }

    /// Checks that the archive ends here.
    fn finish(&mut self) -> Result<(), BundleError> {
        if let Some(header) = self.header()? {
            let name = entry_name(&header).unwrap_or_default();
            return Err(self.unexpected(&name, "the end of the archive"));
        }
        match self.file.len() - self.at {
            rest if rest < 2 * BLOCK => Err(BundleError::Truncated {
                name: "the end".to_owned(),
                expected: 2 * BLOCK as u64,
                found: rest as u64,
            }),
            rest if rest > 2 * BLOCK || self.file[self.at..].iter().any(|byte| *byte != 0) => {
                Err(BundleError::Trailing { bytes: (rest - 2 * BLOCK) as u64 })
            }
            _ => Ok(()),
        }
    }

    /// Returns the header at the current position, or `None` at the end of the archive.
    fn header(&self) -> Result<Option<tar::Header>, BundleError> {
        if let Some((_, format)) = COMPRESSED.iter().find(|(magic, _)| self.at == 0 && self.file.starts_with(magic)) {
            return Err(BundleError::NotBundle { reason: format!("it is compressed ({format}), and bundles are not") });
        }
        let Some(block) = self.file.get(self.at..self.at + BLOCK) else {
            if self.at == 0 {
                let bytes = self.file.len();
                return Err(BundleError::NotBundle { reason: format!("it has only {bytes} bytes") });
            }
            let name = ENTRIES.get(self.next).copied().unwrap_or("the end").to_owned();
            let found = (self.file.len() - self.at) as u64;
            return Err(BundleError::Truncated { name, expected: BLOCK as u64, found });
        };
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut header = tar::Header::new_old();
        header.as_mut_bytes().copy_from_slice(block);
        if header.as_ustar().is_none() && header.as_gnu().is_none() {
            let reason = match self.at {
                0 => "it does not begin as a tar archive does".to_owned(),
                at => format!("byte {at} is not the beginning of an entry"),
            };
            return Err(BundleError::NotBundle { reason });
        }
        Ok(Some(header))
    }

    fn check_kind(&self, header: &tar::Header) -> Result<(), BundleError> {
        let what = match header.entry_type() {
            EntryType::Regular => return Ok(()),
            EntryType::Symlink => "a symbolic link",
            EntryType::Link => "a hard link",
            EntryType::Directory => "a directory",
            EntryType::Block | EntryType::Char | EntryType::Fifo => "a device",
            _ => "an extension of the format",
        };
        Err(self.refuse(header, format!("it is {what}, and a bundle has only plain files")))
    }

    fn refuse(&self, header: &tar::Header, reason: String) -> BundleError {
        BundleError::Entry { name: shorten(&entry_name(header).unwrap_or_default()), reason }
    }

    /// Returns the error for an entry called `found` in the place of `expected`.
    fn unexpected(&self, found: &str, expected: &str) -> BundleError {
        let place = ENTRIES.iter().position(|name| *name == found);
        let reason = match place {
            Some(place) if place < self.next => "it is there twice".to_owned(),
            Some(_) => format!("it is in the place of {expected}"),
            None => format!("a bundle has no such file; it has {}", ENTRIES.join(", ")),
        };
        BundleError::Entry { name: shorten(found), reason }
    }
}

/// Returns the name in a header, with the folder of its prefix field, or `None` if it is not text.
fn entry_name(header: &tar::Header) -> Option<String> {
    String::from_utf8(header.path_bytes().into_owned()).ok()
}

/// Quotes a name for messages, shortened and without control characters.
fn shorten(name: &str) -> String {
    let short: String = name.chars().take(NAME_SHOWN_MAX).collect();
    format!("`{}`", short.escape_default())
}
