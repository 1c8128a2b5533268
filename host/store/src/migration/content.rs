//! Content that is copied: files of a state directory and objects of a bucket.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use bytes::Bytes;

use super::{ContentCount, ContentLeft};
use crate::digest::{Digest, Sha256Hasher};
use crate::error::StoreError;
use crate::objects::BlockingObjects;
use crate::regular_file;

/// What content belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ContentKind {
    Checkpoints,
    Plugins,
    Datasets,
    Models,
    JobFiles,
}

impl ContentKind {
    fn name(self) -> &'static str {
        match self {
            ContentKind::Checkpoints => "checkpoints",
            ContentKind::Plugins => "plugins",
            ContentKind::Datasets => "datasets",
            ContentKind::Models => "models",
            ContentKind::JobFiles => "logs, outputs and logged items of jobs",
        }
    }
}

/// Where bytes are read.
#[derive(Clone, Debug)]
pub(super) enum ContentSource {
    /// A part of a file.
    File { path: PathBuf, first_byte: u64, bytes: u64 },
    /// An object, with its digest if that is known.
    Object { name: String, bytes: u64, sha256: Option<Digest> },
    /// Here.
    Bytes(Bytes),
}

impl ContentSource {
    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            ContentSource::File { bytes, .. } | ContentSource::Object { bytes, .. } => *bytes,
            ContentSource::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Reads it.
    pub(super) fn read(&self, bucket: &BlockingObjects) -> Result<Bytes, StoreError> {
        match self {
            ContentSource::Bytes(bytes) => Ok(bytes.clone()),
            ContentSource::File { path, first_byte, bytes } => {
                let read = || {
                    let mut file = regular_file::open(path)?;
                    file.seek(SeekFrom::Start(*first_byte))?;
                    let mut content = Vec::new();
                    file.take(*bytes).read_to_end(&mut content)?;
                    if content.len() as u64 == *bytes {
                        return Ok(content.into());
                    }
                    Err(std::io::Error::other("it became shorter while it was copied"))
                };
                read().map_err(StoreError::io(path))
            }
            ContentSource::Object { name, sha256, .. } => {
                let (name, sha256) = (name.clone(), *sha256);
                bucket.wait(|objects| async move {
                    match sha256 {
                        Some(sha256) => objects.get_verified(&name, &sha256).await,
                        None => objects.get(&name).await,
                    }
                })
            }
        }
    }
}

/// An object or a file to write.
#[derive(Clone, Debug)]
pub(super) struct ContentItem {
    pub(super) kind: ContentKind,
    /// The name of the object, or the path below the state directory.
    pub(super) target: String,
    /// The content, in this order. An object has one.
    pub(super) pieces: Vec<ContentSource>,
}

impl ContentItem {
    pub(super) fn bytes(&self) -> u64 {
        self.pieces.iter().map(ContentSource::bytes).sum()
    }
}

/// What is to be copied, and what is not.
#[derive(Debug, Default)]
pub(super) struct ContentPlan {
    pub(super) items: Vec<ContentItem>,
    pub(super) left: Vec<ContentLeft>,
}

impl ContentPlan {
    pub(super) fn add(&mut self, kind: ContentKind, target: String, source: ContentSource) {
        self.items.push(ContentItem { kind, target, pieces: vec![source] });
    }

    pub(super) fn leave(&mut self, name: impl Into<String>, reason: &'static str) {
        self.left.push(ContentLeft { name: name.into(), reason });
    }

    pub(super) fn bytes(&self) -> u64 {
        self.items.iter().map(ContentItem::bytes).sum()
    }
}

/// What was written: the kind, the bytes and the digest of each object or file.
#[derive(Debug, Default)]
pub(super) struct ContentLedger(pub(super) BTreeMap<String, (ContentKind, u64, Digest)>);

impl ContentLedger {
    pub(super) fn bytes(&self) -> u64 {
        self.0.values().map(|(_, bytes, _)| bytes).sum()
    }

    /// Counts what was written by kind.
    pub(super) fn count(&self) -> Vec<ContentCount> {
        let mut kinds: BTreeMap<ContentKind, (u64, u64, Sha256Hasher)> = BTreeMap::new();
        for (name, (kind, bytes, sha256)) in &self.0 {
            let (count, sum, hasher) = kinds.entry(*kind).or_default();
            (*count, *sum) = (*count + 1, *sum + bytes);
            hasher.update_field(name.as_bytes());
            hasher.update(sha256.bytes());
        }
        let count = |(kind, (count, bytes, hasher)): (ContentKind, (u64, u64, Sha256Hasher))| ContentCount {
            kind: kind.name(),
            count,
            bytes,
            sha256: hasher.finish(),
        };
        kinds.into_iter().map(count).collect()
    }
}
