//! Where the plans and the chunks of uploads are: in a directory of this machine, or in a bucket, where every server finds
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use saggar_clock::UnixMillis;

use crate::bucket_folders::UPLOADS_FOLDER;
use crate::digest::Digest;
use crate::durable::{self, disk};
use crate::error::StoreError;
use crate::limits::{CHUNK_BYTES_MAX, MANIFEST_BYTES_MAX};
use crate::objects::BlockingObjects;
use crate::regular_file;

const PLAN_FILE: &str = "plan.json";

/// The plans and chunks of uploads.
#[derive(Clone, Debug)]
pub(super) enum ChunkStore {
    /// Below this directory.
    Directory(PathBuf),
    /// In this bucket.
    Bucket(BlockingObjects),
}

/// The chunks of an upload that were received.
#[derive(Debug, Default)]
pub(super) struct StoredChunks {
    pub(super) digests: BTreeSet<Digest>,
    /// The bytes of all.
    pub(super) bytes: u64,
}

fn plan_object(id: &Digest) -> String {
    format!("{UPLOADS_FOLDER}/{}/{PLAN_FILE}", id.hex())
}

fn chunks_folder(id: &Digest) -> String {
    format!("{UPLOADS_FOLDER}/{}/chunks", id.hex())
}

impl ChunkStore {
    /// Stores the plan of an upload, which replaces an equal one.
    pub(super) fn write_plan(&self, id: &Digest, text: Vec<u8>) -> Result<(), StoreError> {
        match self {
            ChunkStore::Directory(root) => {
                let directory = root.join(id.hex());
                let chunks = directory.join("chunks");
                durable::create_directories_below(root, &chunks).map_err(StoreError::io(&chunks))?;
                let path = directory.join(PLAN_FILE);
                durable::replace(&path, &text).map_err(StoreError::io(&path))
            }
            ChunkStore::Bucket(objects) => {
                let name = plan_object(id);
                objects.wait(|objects| async move { objects.replace(&name, text.into()).await })
            }
        }
    }

    /// Returns the plan of an upload, or `None` if there is no such upload.
    pub(super) fn read_plan(&self, id: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
        match self {
            ChunkStore::Directory(root) => {
                let path = root.join(id.hex()).join(PLAN_FILE);
                match regular_file::read(&path, MANIFEST_BYTES_MAX) {
                    Ok(text) => Ok(Some(text)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(StoreError::io(&path)(error)),
                }
            }
            ChunkStore::Bucket(objects) => {
                let name = plan_object(id);
                let text = objects.wait(|objects| async move { objects.find(&name).await })?;
                Ok(text.map(|text| text.to_vec()))
            }
        }
    }

    /// Returns the chunks of an upload that were received.
    pub(super) fn stored_chunks(&self, id: &Digest) -> Result<StoredChunks, StoreError> {
        match self {
            ChunkStore::Directory(root) => stored_files(&root.join(id.hex()).join("chunks")),
            ChunkStore::Bucket(objects) => {
                let folder = chunks_folder(id);
                let listed = objects.wait(|objects| async move { objects.list_flat(&folder).await })?;
                let mut stored = StoredChunks::default();
                for object in listed {
                    stored.digests.extend(object.name.rsplit('/').next().and_then(|name| name.parse::<Digest>().ok()));
                    stored.bytes += object.size;
                }
                Ok(stored)
            }
        }
    }

    /// Stores a chunk, which was verified. Returns `false` if there is no such upload any more.
    pub(super) fn write_chunk(&self, id: &Digest, sha256: &Digest, bytes: &[u8]) -> Result<bool, StoreError> {
        match self {
            ChunkStore::Directory(root) => {
                let path = root.join(id.hex()).join("chunks").join(sha256.hex());
                match durable::replace(&path, bytes) {
                    Ok(()) => Ok(true),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                    Err(error) => Err(StoreError::io(&path)(error)),
                }
            }
            ChunkStore::Bucket(objects) => {
                let name = format!("{}/{}", chunks_folder(id), sha256.hex());
                let payload = Bytes::copy_from_slice(bytes).into();
                objects.wait(|objects| async move { objects.replace(&name, payload).await })?;
                Ok(true)
            }
        }
    }

    /// Returns a chunk. The caller verifies the file that it is a part of.
    pub(super) fn read_chunk(&self, id: &Digest, sha256: &Digest) -> Result<Vec<u8>, StoreError> {
        match self {
            ChunkStore::Directory(root) => {
                let source = root.join(id.hex()).join("chunks").join(sha256.hex());
                regular_file::read(&source, CHUNK_BYTES_MAX as u64).map_err(StoreError::io(&source))
            }
            ChunkStore::Bucket(objects) => {
                let (name, sha256) = (format!("{}/{}", chunks_folder(id), sha256.hex()), *sha256);
                let chunk = objects.wait(|objects| async move { objects.get_verified(&name, &sha256).await })?;
                Ok(chunk.to_vec())
            }
        }
    }

    /// Removes an upload. What is left after a failure has no plan, and is removed as an old upload.
    pub(super) fn remove(&self, id: &Digest) {
        match self {
            ChunkStore::Directory(root) => {
                let directory = root.join(id.hex());
                let _ = disk::remove_file(&directory.join(PLAN_FILE));
                let _ = disk::remove_tree(&directory);
            }
            ChunkStore::Bucket(objects) => {
                let (plan, folder) = (plan_object(id), format!("{UPLOADS_FOLDER}/{}", id.hex()));
                let removed = objects.wait(|objects| async move {
                    objects.delete(&plan).await?;
                    objects.delete_folder(&folder).await
                });
                if let Err(error) = removed {
                    tracing::warn!(upload = %id, %error, "an upload is not removed from the bucket");
                }
            }
        }
    }

    /// Returns every upload, and when it was announced. Without a plan, an upload is being announced or removed: then it is the
    /// newest time of what is there.
    pub(super) fn list(&self) -> Result<BTreeMap<Digest, UnixMillis>, StoreError> {
        match self {
            ChunkStore::Directory(root) => list_directories(root),
            ChunkStore::Bucket(objects) => {
                let listed = objects.wait(|objects| async move { objects.list(UPLOADS_FOLDER).await })?;
                let mut uploads: BTreeMap<Digest, UnixMillis> = BTreeMap::new();
                let mut announced = BTreeMap::new();
                for object in listed {
                    let mut parts = object.name.split('/').skip(1);
                    let Some(id) = parts.next().and_then(|id| id.parse().ok()) else { continue };
                    let newest = uploads.entry(id).or_default();
                    *newest = object.written_ms.max(*newest);
                    if parts.next() == Some(PLAN_FILE) {
                        announced.insert(id, object.written_ms);
                    }
                }
                uploads.extend(announced);
                Ok(uploads)
            }
        }
    }
}

fn stored_files(directory: &Path) -> Result<StoredChunks, StoreError> {
    let mut stored = StoredChunks::default();
    let listed = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(stored),
        listed => listed.map_err(StoreError::io(directory))?,
    };
    for entry in listed {
        let entry = entry.map_err(StoreError::io(directory))?;
        let Ok(data) = entry.metadata() else { continue };
        stored.bytes += data.len();
        let digest = entry.file_name().to_str().and_then(|name| name.parse::<Digest>().ok());
        stored.digests.extend(digest.filter(|_| data.is_file()));
    }
    Ok(stored)
}

fn list_directories(root: &Path) -> Result<BTreeMap<Digest, UnixMillis>, StoreError> {
    let listed = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        listed => listed.map_err(StoreError::io(root))?,
    };
    let mut uploads = BTreeMap::new();
    for entry in listed {
        let entry = entry.map_err(StoreError::io(root))?;
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let written = |path: &Path| fs::metadata(path).and_then(|it| it.modified());
        let announced = written(&entry.path().join(PLAN_FILE)).or_else(|_| written(&entry.path()));
        let since = announced.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        uploads.insert(id, since.and_then(|since| u64::try_from(since.as_millis()).ok()).unwrap_or_default());
    }
    Ok(uploads)
}
