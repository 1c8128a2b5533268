//! Datasets that come in chunks: content-addressed, so an upload that was cut off goes on where it
//! was, and one that was made before costs nothing.
//!
//! ```text
//! uploads/<id>/plan.json        what was announced; <id> follows from it
//! uploads/<id>/chunks/<digest>  what came so far, verified
//! ```

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::{DatasetInfo, DatasetStore, check_name};
use crate::clock::UnixMillis;
use crate::digest::{Digest, Sha256Hasher};
use crate::durable::{self, disk};
use crate::error::{DatasetError, StoreError};
use crate::limits::{
    CHUNK_BYTES_MAX, DISK_RESERVE_BYTES, INGESTS_WAITING_MAX, MANIFEST_BYTES_MAX, UPLOAD_BYTES_MAX, UPLOAD_FILES_MAX,
    UPLOAD_PATH_BYTES_MAX, UPLOAD_PATH_PARTS_MAX, UPLOADS_OPEN_MAX,
};
use crate::{regular_file, storage_usage};

/// Bytes on the disk for each byte of an upload: its chunks, its files, its columns.
const DISK_BYTES_PER_BYTE: u64 = 3;

/// A file to come.
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

/// The answer to [`UploadStore::begin`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UploadStatus {
    /// Names the upload from now on.
    pub id: Digest,
    /// Chunks to send, each once. Then commit.
    pub missing: Vec<Digest>,
    /// The version that the same content has already: there is nothing to do.
    pub version: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UploadPlan {
    name: String,
    files: Vec<UploadFile>,
}

/// Uploads on the way into [`DatasetStore`]. One process at a time: the server.
#[derive(Debug)]
pub struct UploadStore {
    dir: PathBuf,
    datasets: DatasetStore,
    free_bytes: fn(&Path) -> io::Result<u64>,
    /// One dataset is taken in at a time: so memory is bounded, and two commits of one upload do not take each other's files
    /// away.
    ingest_lock: Mutex<()>,
    /// Who has the turn or waits for it.
    waiting: AtomicUsize,
    /// The uploads that were asked about last, the newest last, so that a chunk does not cost reading a whole plan.
    open_uploads: Mutex<Vec<OpenUpload>>,
}

/// What is asked of an upload for each of its chunks.
#[derive(Clone, Debug)]
struct OpenUpload {
    id: Digest,
    /// The digests of its chunks, sorted.
    chunks: Arc<[Digest]>,
}

/// The right to take in a dataset, until it is dropped.
#[derive(Debug)]
pub struct IngestPermit<'a> {
    _turn: MutexGuard<'a, ()>,
    _place: IngestWaiter<'a>,
}

/// Counts one who waits for the turn, or has it.
#[derive(Debug)]
struct IngestWaiter<'a>(&'a AtomicUsize);

impl Drop for IngestWaiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl UploadStore {
    /// Uploads kept under `dir` until they are in `datasets`.
    pub fn new(dir: impl Into<PathBuf>, datasets: DatasetStore) -> UploadStore {
        let (turn, waiting, open) = (Mutex::default(), AtomicUsize::new(0), Mutex::default());
        UploadStore {
            dir: dir.into(),
            datasets,
            free_bytes: durable::free_bytes,
            ingest_lock: turn,
            waiting,
            open_uploads: open,
        }
    }

    /// Another way of asking how many bytes are free: for tests.
    #[must_use]
    pub fn with_free_bytes(mut self, free_bytes: fn(&Path) -> io::Result<u64>) -> UploadStore {
        self.free_bytes = free_bytes;
        self
    }

    /// Announces an upload, or goes on with one: the same announcement has the same identifier. `room` says whether so
    /// many bytes may be kept, before any is sent.
    ///
    /// # Errors
    /// `BadName`; `BadPath`; `TooLarge`; `WrongSize` where there are too few or too many chunks;
    /// `DiskFull`; `Store`, also with what `room` answers.
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
        let dir = self.upload_dir(&id);
        let chunks = dir.join("chunks");
        // What came already of an upload that goes on has its room.
        let there = storage_usage::tree_bytes(&chunks)?;
        room(total.saturating_sub(there))?;
        durable::create_directories_below(&self.dir, &chunks).map_err(StoreError::io(&chunks))?;
        let path = dir.join("plan.json");
        let text = serde_json::to_vec(&plan).map_err(io::Error::from);
        text.and_then(|text| durable::replace(&path, &text)).map_err(StoreError::io(&path))?;
        self.remember_open(&id, plan.sorted_chunks());
        Ok(UploadStatus { id, missing: missing_chunks(&dir, &plan), version: None })
    }

    /// Takes a chunk. Sending it again is fine.
    ///
    /// # Errors
    /// `TooLarge`; `WrongDigest`; `NotFound` where the upload is unknown or has no such chunk;
    /// `Store`.
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
        let path = self.upload_dir(id).join("chunks").join(sha256.hex());
        durable::replace(&path, bytes).map_err(|error| match error.kind() {
            // It was forgotten after it was looked at.
            io::ErrorKind::NotFound => {
                self.lock_open_uploads().retain(|open| open.id != *id);
                DatasetError::NotFound { kind: "upload", name: id.hex() }
            }
            _ => StoreError::io(&path)(error).into(),
        })
    }

    /// The chunks that an upload still needs.
    ///
    /// # Errors
    /// `NotFound`; `Store`.
    pub fn missing(&self, id: &Digest) -> Result<Vec<Digest>, DatasetError> {
        Ok(missing_chunks(&self.upload_dir(id), &self.read_plan(id)?))
    }

    /// Puts the files together, takes them in, and forgets the upload; also where the files turn
    /// out to be no dataset. Committing again gives the same version. May take long. `room` says whether so many bytes
    /// more (the second number) may be stored when the first number of bytes, those of the upload, are gone.
    ///
    /// # Errors
    /// `NotFound`; `ChunksMissing`; `WrongSize`, `WrongDigest` for a file; everything that
    /// [`DatasetStore::ingest`] finds; `Store`, after which committing again is possible.
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
        let missing = missing_chunks(&dir, &plan).len();
        if missing > 0 {
            return Err(DatasetError::ChunksMissing { id: id.hex(), missing });
        }
        let files = dir.join("files");
        let taken = assemble(&dir.join("chunks"), &files, &plan).and_then(|()| {
            let going = storage_usage::tree_bytes(&dir)?;
            self.datasets.ingest_from(name, &files, Some(*id), now_ms, &|bytes| room(going, bytes))
        });
        match &taken {
            // The chunks are good; the disk was not. They stay for another try.
            Err(DatasetError::Store(_) | DatasetError::DiskFull { .. }) => drop(disk::remove_tree(&files)),
            Ok(_) | Err(_) => self.discard(id),
        }
        taken
    }

    /// Waits until nothing else is taken in that takes its turn, and lets nothing else be until the guard is dropped.
    ///
    /// # Errors
    /// `Busy` where [`INGESTS_WAITING_MAX`] wait already: each has a thread.
    pub fn acquire_ingest_permit(&self) -> Result<IngestPermit<'_>, DatasetError> {
        let place = IngestWaiter(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed) > INGESTS_WAITING_MAX {
            return Err(DatasetError::Busy { max: INGESTS_WAITING_MAX });
        }
        Ok(IngestPermit { _turn: self.ingest_lock.lock().unwrap_or_else(PoisonError::into_inner), _place: place })
    }

    /// Forgets an upload and what came of it.
    pub fn discard(&self, id: &Digest) {
        self.lock_open_uploads().retain(|open| open.id != *id);
        // The plan goes first: without it the rest is nothing, and `discard_older_than` finds it.
        let dir = self.upload_dir(id);
        let _ = disk::remove_file(&dir.join("plan.json"));
        let _ = disk::remove_tree(&dir);
    }

    /// Forgets uploads that were announced before a time. Returns how many.
    ///
    /// # Errors
    /// `Store` where the directory cannot be listed.
    pub fn discard_older_than(&self, before_ms: UnixMillis) -> Result<usize, DatasetError> {
        let mut swept = 0;
        let listed = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            listed => listed.map_err(StoreError::io(&self.dir))?,
        };
        for entry in listed {
            let entry = entry.map_err(StoreError::io(&self.dir))?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let begun = fs::metadata(entry.path().join("plan.json")).and_then(|it| it.modified());
            let since = begun.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            if since.is_none_or(|since| since.as_millis() < u128::from(before_ms)) {
                self.discard(&id);
                swept += 1;
            }
        }
        Ok(swept)
    }

    fn upload_dir(&self, id: &Digest) -> PathBuf {
        self.dir.join(id.hex())
    }

    fn lock_open_uploads(&self) -> MutexGuard<'_, Vec<OpenUpload>> {
        self.open_uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The digests of an upload's chunks, sorted.
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

    /// Has an upload at hand, in the place of the one that was asked about least recently.
    fn remember_open(&self, id: &Digest, chunks: Arc<[Digest]>) {
        let mut open = self.lock_open_uploads();
        open.retain(|open| open.id != *id);
        open.push(OpenUpload { id: *id, chunks });
        let over = open.len().saturating_sub(UPLOADS_OPEN_MAX);
        open.drain(..over);
    }

    fn read_plan(&self, id: &Digest) -> Result<UploadPlan, DatasetError> {
        let path = self.upload_dir(id).join("plan.json");
        let text = match regular_file::read(&path, MANIFEST_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DatasetError::NotFound { kind: "upload", name: id.hex() });
            }
            Err(error) => return Err(StoreError::io(&path)(error).into()),
        };
        let plan: Result<UploadPlan, _> = serde_json::from_slice(&text);
        // A plan that is not the one announced is none: the identifier is its digest.
        let plan = plan.ok().filter(|plan| plan.upload_id() == *id);
        plan.ok_or_else(|| DatasetError::NotFound { kind: "upload", name: id.hex() })
    }
}

impl UploadPlan {
    /// The digests of all chunks, sorted, each once.
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

fn missing_chunks(dir: &Path, plan: &UploadPlan) -> Vec<Digest> {
    let chunks = dir.join("chunks");
    let mut seen = HashSet::new();
    let all = plan.files.iter().flat_map(|file| &file.chunks).copied();
    all.filter(|chunk| seen.insert(*chunk) && !chunks.join(chunk.hex()).is_file()).collect()
}

/// Whether this names a file in a folder, on every system, and nothing outside of it.
pub(crate) fn is_relative_file_path(path: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty() && !part.starts_with('.') && !part.chars().any(|c| c.is_control() || r#"\:*?"<>|"#.contains(c))
    };
    path.len() <= UPLOAD_PATH_BYTES_MAX && path.split('/').all(part) && path.split('/').count() <= UPLOAD_PATH_PARTS_MAX
}

/// Bytes of all files, if they can be files of one folder.
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

/// Writes the files from their chunks, checking each. What an earlier try left is taken away.
fn assemble(chunks: &Path, files: &Path, plan: &UploadPlan) -> Result<(), DatasetError> {
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
        // Nothing is synced here: these files only live until the columns are written.
        let file = disk::create_file(&path, durable::PRIVATE_FILE_MODE).map_err(StoreError::io(&path))?;
        let (mut hasher, mut found) = (Sha256Hasher::new(), 0);
        for chunk in &announced.chunks {
            let source = chunks.join(chunk.hex());
            let bytes = regular_file::read(&source, CHUNK_BYTES_MAX as u64).map_err(StoreError::io(&source))?;
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

/// Makes a directory and its missing parents.
fn make_directories(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), make_directories)?;
    disk::make_directory(path)
}
