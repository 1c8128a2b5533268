//! Uploads of datasets in chunks. Chunks are content-addressed, so an interrupted upload resumes, and repeating an
//! upload transfers nothing.
//!
//! ```text
//! uploads/<id>/plan.json            the announcement; <id> is derived from it
//! uploads/<id>/chunks/<digest>      received chunks, verified
//! uploads/<id>/files                the files while they are imported, on the machine that imports them
//! ```
//!
//! The plans and chunks are in a directory, or in the bucket that servers have in common, so that an upload can be continued
//! and committed on any of them.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use saggar_clock::UnixMillis;
use serde::{Deserialize, Serialize};

use super::{DatasetInfo, DatasetStore, check_name};
use crate::digest::{Digest, Sha256Hasher};
use crate::directory_size::tree_bytes;
use crate::durable::{self, disk};
use crate::error::{DatasetError, StoreError};
use crate::limits::{
    CHUNK_BYTES_MAX, DISK_RESERVE_BYTES, INGESTS_WAITING_MAX, UPLOAD_BYTES_MAX, UPLOAD_FILES_MAX,
    UPLOAD_PATH_BYTES_MAX, UPLOAD_PATH_PARTS_MAX, UPLOADS_OPEN_MAX,
};
use crate::objects::BlockingObjects;

mod chunk_store;

use chunk_store::ChunkStore;

/// Bytes on the disk per uploaded byte: its chunks, its files, its columns.
const DISK_BYTES_PER_BYTE: u64 = 3;

/// A file to upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadFile {
    /// Its path in the folder: relative, with `/`.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// The digest of its content.
    pub sha256: Digest,
    /// Digests of its chunks, in order; each chunk has at most [`CHUNK_BYTES_MAX`] bytes.
    pub chunks: Vec<Digest>,
}

/// The result of [`UploadStore::begin`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UploadStatus {
    /// Identifies the upload in later calls.
    pub id: Digest,
    /// Chunks to send, without duplicates. Then commit.
    pub missing: Vec<Digest>,
    /// The existing version with the same content; nothing needs to be sent.
    pub version: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UploadPlan {
    name: String,
    files: Vec<UploadFile>,
}

/// Uploads to a [`DatasetStore`]. Only one process, the server, may use its directory at a time.
#[derive(Debug)]
pub struct UploadStore {
    dir: PathBuf,
    chunks: ChunkStore,
    datasets: DatasetStore,
    free_bytes: fn(&Path) -> io::Result<u64>,
    /// Allows one import at a time. This limits memory, and keeps two commits of one upload from removing each other's
    /// files.
    ingest_lock: Mutex<()>,
    /// The number of callers that hold or wait for the lock.
    waiting: AtomicUsize,
    /// The most recently used uploads, newest last, so that storing a chunk does not read a whole plan.
    open_uploads: Mutex<Vec<OpenUpload>>,
}

/// The data needed to store a chunk of an upload.
#[derive(Clone, Debug)]
struct OpenUpload {
    id: Digest,
    /// The digests of its chunks, sorted.
    chunks: Arc<[Digest]>,
}

/// The right to import a dataset, until this is dropped.
#[derive(Debug)]
pub struct IngestPermit<'a> {
    _turn: MutexGuard<'a, ()>,
    _place: IngestWaiter<'a>,
}

/// Counts a caller that holds or waits for the permit.
#[derive(Debug)]
struct IngestWaiter<'a>(&'a AtomicUsize);

impl Drop for IngestWaiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl UploadStore {
    /// Returns the store of uploads under `dir`, which are then imported into `datasets`.
    pub fn new(dir: impl Into<PathBuf>, datasets: DatasetStore) -> UploadStore {
        let (turn, waiting, open) = (Mutex::default(), AtomicUsize::new(0), Mutex::default());
        let dir = dir.into();
        UploadStore {
            chunks: ChunkStore::Directory(dir.clone()),
            dir,
            datasets,
            free_bytes: durable::free_bytes,
            ingest_lock: turn,
            waiting,
            open_uploads: open,
        }
    }

    /// Keeps plans and chunks in a bucket, so that other servers with the same one can continue each upload.
    #[must_use]
    pub fn with_bucket(mut self, bucket: BlockingObjects) -> UploadStore {
        self.chunks = ChunkStore::Bucket(bucket);
        self
    }

    /// Replaces the function that returns the free disk space in bytes, for tests.
    #[must_use]
    pub fn with_free_bytes(mut self, free_bytes: fn(&Path) -> io::Result<u64>) -> UploadStore {
        self.free_bytes = free_bytes;
        self
    }

    /// Announces an upload, or resumes one: the same announcement has the same identifier. `room` checks the quota for
    /// a number of bytes before any is sent.
    ///
    /// # Errors
    /// Returns `BadName`; `BadPath`; `TooLarge`; `WrongSize` if the number of chunks does not match the size;
    /// `DiskFull`; `Store`, also for errors of `room`.
    pub fn begin(
        &self,
        name: &str,
        files: Vec<UploadFile>,
        room: impl FnOnce(u64) -> Result<(), StoreError>,
    ) -> Result<UploadStatus, DatasetError> {
        check_name(name)?;
        let total = check_files(&files)?;
        let plan = UploadPlan { name: name.to_owned(), files };
        let id = plan.upload_id();
        if let Some(version) = self.datasets.find_version_of_upload(name, &id)? {
            return Ok(UploadStatus { id, missing: Vec::new(), version: Some(version) });
        }
        durable::create_directories(&self.dir).map_err(StoreError::io(&self.dir))?;
        let free = (self.free_bytes)(&self.dir).map_err(StoreError::io(&self.dir))?;
        let needed = total * DISK_BYTES_PER_BYTE + DISK_RESERVE_BYTES;
        if free < needed {
            return Err(DatasetError::DiskFull { needed, free });
        }
        // Chunks already received of a resumed upload take no more space.
        let stored = self.chunks.stored_chunks(&id)?;
        room(total.saturating_sub(stored.bytes))?;
        let text = serde_json::to_vec(&plan).map_err(io::Error::from).map_err(StoreError::io(&self.dir))?;
        self.chunks.write_plan(&id, text)?;
        self.remember_open(&id, plan.sorted_chunks());
        Ok(UploadStatus { id, missing: missing_chunks(&stored.digests, &plan), version: None })
    }

    /// Stores a chunk. Sending it again succeeds.
    ///
    /// # Errors
    /// Returns `TooLarge`; `WrongDigest`; `NotFound` if the upload is unknown or has no such chunk; `Store`.
    pub fn put_chunk(&self, id: &Digest, sha256: &Digest, bytes: &[u8]) -> Result<(), DatasetError> {
        if bytes.len() > CHUNK_BYTES_MAX {
            let (what, max) = (format!("chunk {sha256}"), CHUNK_BYTES_MAX as u64);
            return Err(DatasetError::TooLarge { what, max, unit: "bytes" });
        }
        let found = Digest::of(bytes);
        if found != *sha256 {
            let what = "chunk".to_owned();
            return Err(DatasetError::WrongDigest { what, expected: *sha256, found });
        }
        if self.upload_chunks(id)?.binary_search(sha256).is_err() {
            return Err(DatasetError::NotFound { kind: "chunk", name: sha256.hex() });
        }
        if self.chunks.write_chunk(id, sha256, bytes)? {
            return Ok(());
        }
        // The upload was discarded after it was looked up.
        self.lock_open_uploads().retain(|open| open.id != *id);
        Err(DatasetError::NotFound { kind: "upload", name: id.hex() })
    }

    /// Returns the missing chunks of an upload.
    ///
    /// # Errors
    /// Returns `NotFound`; `Store`.
    pub fn missing(&self, id: &Digest) -> Result<Vec<Digest>, DatasetError> {
        let plan = self.read_plan(id)?;
        Ok(missing_chunks(&self.chunks.stored_chunks(id)?.digests, &plan))
    }

    /// Assembles the files, imports them, and deletes the upload, also if the files are not a valid dataset. Committing
    /// again gives the same version. Can take long. `room` checks whether the second number of bytes can be stored once
    /// the first number, the upload's own bytes, are freed.
    ///
    /// # Errors
    /// Returns `NotFound`; `ChunksMissing`; `WrongSize` or `WrongDigest` for a file; all errors of
    /// [`DatasetStore::ingest`]; `Store`, after which committing again is possible.
    pub fn commit(
        &self,
        name: &str,
        id: &Digest,
        now_ms: UnixMillis,
        room: impl Fn(u64, u64) -> Result<(), StoreError>,
    ) -> Result<DatasetInfo, DatasetError> {
        check_name(name)?;
        let _turn = self.acquire_ingest_permit()?;
        if let Some(version) = self.datasets.find_version_of_upload(name, id)? {
            self.discard(id);
            return self.datasets.info(name, version);
        }
        let plan = self.read_plan(id)?;
        let dir = self.upload_dir(id);
        if plan.name != name {
            return Err(DatasetError::NotFound { kind: "upload", name: format!("{name}/{id}") });
        }
        let missing = missing_chunks(&self.chunks.stored_chunks(id)?.digests, &plan).len();
        if missing > 0 {
            return Err(DatasetError::ChunksMissing { id: id.hex(), missing });
        }
        let files = dir.join("files");
        durable::create_directories_below(&self.dir, &dir).map_err(StoreError::io(&dir))?;
        let read_chunk = |chunk: &Digest| self.chunks.read_chunk(id, chunk);
        let ingested = assemble(&read_chunk, &files, &plan).and_then(|()| {
            let going = tree_bytes(&dir)?;
            self.datasets.ingest_from(name, &files, Some(*id), now_ms, &|bytes| room(going, bytes))
        });
        match &ingested {
            // The disk failed, not the chunks. They are kept for another commit.
            Err(DatasetError::Store(_) | DatasetError::DiskFull { .. }) => drop(disk::remove_tree(&files)),
            Ok(_) | Err(_) => self.discard(id),
        }
        ingested
    }

    /// Waits until no other import runs, and blocks further imports until the permit is dropped.
    ///
    /// # Errors
    /// Returns `Busy` if [`INGESTS_WAITING_MAX`] callers already wait, because each occupies a thread.
    pub fn acquire_ingest_permit(&self) -> Result<IngestPermit<'_>, DatasetError> {
        let place = IngestWaiter(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed) > INGESTS_WAITING_MAX {
            return Err(DatasetError::Busy { max: INGESTS_WAITING_MAX });
        }
        Ok(IngestPermit { _turn: self.ingest_lock.lock(), _place: place })
    }

    /// Deletes an upload and its chunks.
    pub fn discard(&self, id: &Digest) {
        self.lock_open_uploads().retain(|open| open.id != *id);
        self.chunks.remove(id);
        // The files, if the chunks are elsewhere.
        let _ = disk::remove_tree(&self.upload_dir(id));
    }

    /// Deletes uploads that were announced before a time, and returns their number. Blocks.
    ///
    /// # Errors
    /// Returns `Store` if the directory or the bucket cannot be listed.
    pub fn discard_older_than(&self, before_ms: UnixMillis) -> Result<usize, DatasetError> {
        let uploads = self.chunks.list()?;
        let old = uploads.into_iter().filter(|(_, announced)| *announced < before_ms);
        Ok(old.map(|(id, _)| self.discard(&id)).count())
    }

    fn upload_dir(&self, id: &Digest) -> PathBuf {
        self.dir.join(id.hex())
    }

    fn lock_open_uploads(&self) -> MutexGuard<'_, Vec<OpenUpload>> {
        self.open_uploads.lock()
    }

    /// Returns the digests of an upload's chunks, sorted.
    fn upload_chunks(&self, id: &Digest) -> Result<Arc<[Digest]>, DatasetError> {
        {
            let mut open = self.lock_open_uploads();
            if let Some(at) = open.iter().position(|open| open.id == *id) {
                open[at..].rotate_left(1);
                return Ok(Arc::clone(&open[open.len() - 1].chunks));
            }
        }
        let chunks = self.read_plan(id)?.sorted_chunks();
        self.remember_open(id, Arc::clone(&chunks));
        Ok(chunks)
    }

    /// Keeps an upload in memory, replacing the least recently used one.
    fn remember_open(&self, id: &Digest, chunks: Arc<[Digest]>) {
        let mut open = self.lock_open_uploads();
        open.retain(|open| open.id != *id);
        open.push(OpenUpload { id: *id, chunks });
        let over = open.len().saturating_sub(UPLOADS_OPEN_MAX);
        open.drain(..over);
    }

    fn read_plan(&self, id: &Digest) -> Result<UploadPlan, DatasetError> {
        let not_found = || DatasetError::NotFound { kind: "upload", name: id.hex() };
        let text = self.chunks.read_plan(id)?.ok_or_else(not_found)?;
        let plan: Result<UploadPlan, _> = serde_json::from_slice(&text);
        // A plan that does not match the identifier, which is its digest, is ignored.
        let plan = plan.ok().filter(|plan| plan.upload_id() == *id);
        plan.ok_or_else(not_found)
    }
}

impl UploadPlan {
    /// Returns the digests of all chunks, sorted, each once.
    fn sorted_chunks(&self) -> Arc<[Digest]> {
        let mut chunks: Vec<Digest> = self.files.iter().flat_map(|file| &file.chunks).copied().collect();
        chunks.sort_unstable();
        chunks.dedup();
        chunks.into()
    }

    fn upload_id(&self) -> Digest {
        let mut hasher = Sha256Hasher::new();
        hasher.update_field(self.name.as_bytes());
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        for file in files {
            hasher.update_field(file.path.as_bytes());
            hasher.update_u64(file.size);
            hasher.update(file.sha256.bytes());
            hasher.update_u64(file.chunks.len() as u64);
            file.chunks.iter().for_each(|chunk| hasher.update(chunk.bytes()));
        }
        hasher.finish()
    }
}

fn missing_chunks(stored: &BTreeSet<Digest>, plan: &UploadPlan) -> Vec<Digest> {
    let mut seen = HashSet::new();
    let all = plan.files.iter().flat_map(|file| &file.chunks).copied();
    all.filter(|chunk| seen.insert(*chunk) && !stored.contains(chunk)).collect()
}

/// Returns whether this is a valid relative path of a file within a folder, on every system.
pub fn is_relative_file_path(path: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty() && !part.starts_with('.') && !part.chars().any(|c| c.is_control() || r#"\:*?"<>|"#.contains(c))
    };
    path.len() <= UPLOAD_PATH_BYTES_MAX && path.split('/').all(part) && path.split('/').count() <= UPLOAD_PATH_PARTS_MAX
}

/// Returns the total bytes of the files, if their paths are consistent within one folder.
fn check_files(files: &[UploadFile]) -> Result<u64, DatasetError> {
    let too_large = |max, unit| DatasetError::TooLarge { what: "the upload".to_owned(), max, unit };
    if files.len() > UPLOAD_FILES_MAX {
        return Err(too_large(UPLOAD_FILES_MAX as u64, "files"));
    }
    let bad = |path: &str| DatasetError::BadPath { path: path.to_owned() };
    let mut paths = HashSet::new();
    let mut total = 0u64;
    for file in files {
        if !is_relative_file_path(&file.path) || !paths.insert(file.path.as_str()) {
            return Err(bad(&file.path));
        }
        let sum = total.checked_add(file.size).filter(|sum| *sum <= UPLOAD_BYTES_MAX);
        total = sum.ok_or_else(|| too_large(UPLOAD_BYTES_MAX, "bytes"))?;
        let chunks = file.chunks.len() as u64;
        let most = chunks.saturating_mul(CHUNK_BYTES_MAX as u64);
        if most < file.size || chunks > file.size {
            let (path, expected) = (file.path.clone(), file.size);
            let found = if most < file.size { most } else { chunks };
            return Err(DatasetError::WrongSize { path, expected, found });
        }
    }
    for path in &paths {
        let mut folders = path.match_indices('/').map(|(at, _)| &path[..at]);
        if folders.any(|folder| paths.contains(folder)) {
            return Err(bad(path));
        }
    }
    Ok(total)
}

/// Writes the files from their chunks and verifies each. Leftovers of an earlier attempt are removed.
fn assemble(
    read_chunk: &dyn Fn(&Digest) -> Result<Vec<u8>, StoreError>,
    files: &Path,
    plan: &UploadPlan,
) -> Result<(), DatasetError> {
    match disk::remove_tree(files) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(StoreError::io(files)(error).into());
        }
        Ok(()) | Err(_) => {}
    }
    disk::make_directory(files).map_err(StoreError::io(files))?;
    for announced in &plan.files {
        let path = files.join(&announced.path);
        let parent = path.parent().unwrap_or(files);
        make_directories(parent).map_err(StoreError::io(parent))?;
        // Not synced: these files only exist until the columns are written.
        let file = disk::create_file(&path, durable::PRIVATE_FILE_MODE).map_err(StoreError::io(&path))?;
        let (mut hasher, mut found) = (Sha256Hasher::new(), 0);
        for chunk in &announced.chunks {
            let bytes = read_chunk(chunk)?;
            hasher.update(&bytes);
            found += bytes.len() as u64;
            disk::write(&file, &path, &bytes).map_err(StoreError::io(&path))?;
        }
        let (path, expected) = (announced.path.clone(), announced.size);
        if found != expected {
            return Err(DatasetError::WrongSize { path, expected, found });
        }
        let (expected, found) = (announced.sha256, hasher.finish());
        if found != expected {
            let what = format!("file {path}");
            return Err(DatasetError::WrongDigest { what, expected, found });
        }
    }
    Ok(())
}

/// Creates a directory and its missing parents.
fn make_directories(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), make_directories)?;
    disk::make_directory(path)
}
