//! Object storage in local files.
//!
//! An object is written under a temporary name, synced, and renamed; then its directory is synced, and every parent
//! directory that this process has not synced before, because another process may have died after creating one. A file
//! whose sync failed is discarded and never synced again: a second sync can succeed without the bytes.
//!
//! The local store of the crate `object_store` is not used, for three reasons: it leaves an object in place after
//! syncing its directory failed; it trusts existing directories; and it has no place where a test can make the n-th
//! system call fail.

use std::collections::HashSet;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use tokio::task::JoinError;

use crate::durable::{self, disk};
use crate::limits::PUT_TRIES_MAX;

/// The objects under one directory.
#[derive(Clone, Debug)]
pub(crate) struct LocalObjectStore(Arc<LocalObjectStoreInner>);

#[derive(Debug)]
struct LocalObjectStoreInner {
    root: PathBuf,
    /// Directories that this process knows to be durable, including all their parents.
    synced: Mutex<HashSet<PathBuf>>,
}

impl LocalObjectStore {
    /// Opens the store under `root`, which must be a directory.
    pub(crate) fn new(root: &FsPath) -> io::Result<LocalObjectStore> {
        let root = std::path::absolute(root)?;
        if !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(LocalObjectStore(Arc::new(LocalObjectStoreInner { root, synced: Mutex::default() })))
    }

    /// Removes leftovers of killed puts in a folder and below. Puts in progress there fail.
    pub(super) fn sweep(&self, folder: &str) -> io::Result<()> {
        let mut left = vec![self.0.root.join(folder)];
        while let Some(directory) = left.pop() {
            for (path, kind) in list_directory(&directory)? {
                if kind.is_dir() {
                    left.push(path);
                } else if is_staged(&path) {
                    ignore_not_found(disk::remove_file(&path))?;
                }
            }
        }
        Ok(())
    }

    /// Makes an existing object durable, with its parent folders.
    pub(super) async fn sync(&self, name: &str) -> io::Result<()> {
        let (inner, mut path) = (Arc::clone(&self.0), self.0.root.join(name));
        let sync = move || {
            disk::sync(&disk::open(&path)?, &path)?;
            while path.pop() && path.starts_with(&inner.root) {
                disk::sync_directory(&path)?;
            }
            Ok(())
        };
        run_blocking_io(sync).await
    }

    /// Makes earlier deletions directly in a folder durable. Does nothing if the folder does not exist.
    pub(super) fn sync_folder(&self, folder: &str) -> io::Result<()> {
        ignore_not_found(disk::sync_directory(&self.0.root.join(folder)))
    }

    /// Removes a folder and all objects in it. For other processes it vanishes in one durable step.
    pub(super) async fn delete_folder(&self, folder: &str) -> io::Result<()> {
        let path = self.0.root.join(folder);
        self.0.lock_synced().retain(|known| !known.starts_with(&path));
        run_blocking_io(move || durable::remove_directory(&path)).await
    }

    /// Keeps an object from [`delete_unless_pinned`](Self::delete_unless_pinned) in every process.
    pub(super) fn pin(&self, name: &str) -> io::Result<ObjectPin> {
        let file = disk::open(&self.0.root.join(name))?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::NotFound.into()),
            // On a file system without locks, a slow reader can find an error, but never another object's bytes.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        // It may have been deleted between being opened and being locked.
        if file.metadata()?.nlink() == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(ObjectPin { _file: Some(file) })
    }

    /// Deletes an object unless it is pinned, and returns whether it is gone.
    pub(super) fn delete_unless_pinned(&self, name: &str) -> io::Result<bool> {
        let path = self.0.root.join(name);
        let file = disk::open(&path);
        if file.as_ref().is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock))) {
            return Ok(false);
        }
        ignore_not_found(disk::remove_file(&path)).map(|()| true)
    }
}

/// Keeps an object from being deleted until this is dropped.
#[derive(Debug)]
pub(crate) struct ObjectPin {
    /// The locked file; `None` in a store without locks.
    _file: Option<File>,
}

impl ObjectPin {
    /// Returns a pin without effect.
    pub(super) fn none() -> ObjectPin {
        ObjectPin { _file: None }
    }
}

impl LocalObjectStoreInner {
    fn file_path(&self, location: &Path) -> PathBuf {
        location.parts().fold(self.root.clone(), |path, part| path.join(part.as_ref()))
    }

    fn lock_synced(&self) -> parking_lot::MutexGuard<'_, HashSet<PathBuf>> {
        self.synced.lock()
    }

    /// Makes sure that a directory exists and is durable.
    fn ensure_directory(&self, path: &FsPath) -> io::Result<()> {
        if self.lock_synced().contains(path) && path.is_dir() {
            return Ok(());
        }
        durable::create_directories_below(&self.root, path)?;
        self.lock_synced().insert(path.to_owned());
        Ok(())
    }

    /// Writes an object to the file at `path`. If a concurrent sweep removes the temporary file as if a killed process
    /// had left it, writes it once more.
    fn put(&self, path: &FsPath, payload: &PutPayload, mode: &PutMode) -> io::Result<()> {
        let mut tries_left = PUT_TRIES_MAX;
        loop {
            tries_left -= 1;
            match self.put_once(path, payload, mode) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries_left > 0 => {}
                put => return put,
            }
        }
    }

    fn put_once(&self, path: &FsPath, payload: &PutPayload, mode: &PutMode) -> io::Result<()> {
        let directory = path.parent().unwrap_or(&self.root);
        // Checked first to avoid writing the file; the link below decides between two concurrent puts.
        if *mode == PutMode::Create && path.exists() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.ensure_directory(directory)?;
        let mut staged = path.as_os_str().to_owned();
        staged.push(format!("#{}", durable::unique_suffix()));
        let staged = PathBuf::from(staged);
        let file = disk::create_file(&staged, durable::PRIVATE_FILE_MODE)?;
        let pieces: Vec<&Bytes> = payload.iter().collect();
        let written = durable::write_and_sync(&file, &staged, &pieces);
        let placed = written.and_then(|()| match mode {
            PutMode::Overwrite => disk::rename(&staged, path),
            PutMode::Create => disk::link(&staged, path),
            PutMode::Update(_) => Err(io::ErrorKind::Unsupported.into()),
        });
        if placed.is_err() || *mode == PutMode::Create {
            let _ = disk::remove_file(&staged);
        }
        placed?;
        disk::sync_directory(directory).inspect_err(|_| {
            // No process may depend on a name that is possibly not durable.
            if *mode == PutMode::Create {
                let _ = disk::remove_file(path);
            }
        })
    }

    /// Returns an object's metadata, or `None` if the file does not exist or is not a regular file.
    fn stat(&self, path: &FsPath) -> io::Result<Option<ObjectMeta>> {
        let data = match std::fs::metadata(path) {
            Ok(data) if data.is_file() => data,
            Ok(_) => return Ok(None),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Some(location) = self.location(path) else { return Ok(None) };
        let last_modified = data.modified().unwrap_or(SystemTime::UNIX_EPOCH).into();
        Ok(Some(ObjectMeta { location, last_modified, size: data.len(), e_tag: None, version: None }))
    }

    /// Returns the object of a file, or `None` if its path is not a valid object name.
    fn location(&self, path: &FsPath) -> Option<Path> {
        let name = path.strip_prefix(&self.root).ok()?.to_str()?;
        Path::parse(name).ok().filter(|_| !is_staged(path))
    }

    /// Returns the objects below a directory, or those directly in it together with its directories.
    fn list(&self, directory: &FsPath, deep: bool) -> io::Result<ListResult> {
        let mut found = ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: Default::default() };
        let mut left = vec![directory.to_owned()];
        while let Some(directory) = left.pop() {
            for (path, kind) in list_directory(&directory)? {
                match kind.is_dir() {
                    true if deep => left.push(path),
                    true => found.common_prefixes.extend(self.location(&path)),
                    false => found.objects.extend(self.stat(&path)?),
                }
            }
        }
        Ok(found)
    }

    fn get(&self, location: Path, options: &GetOptions) -> Result<GetResult> {
        let path = self.file_path(&location);
        let missing = || object_error(&location, io::ErrorKind::NotFound.into());
        let meta = self.stat(&path).map_err(|error| object_error(&location, error))?.ok_or_else(missing)?;
        options.check_preconditions(&meta)?;
        if options.range.is_some() {
            return Err(unsupported("reading a range"));
        }
        let bytes = if options.head { Ok(Vec::new()) } else { disk::read(&path) };
        let bytes = bytes.map_err(|error| object_error(&location, error))?;
        let payload = GetResultPayload::Stream(futures::stream::once(async { Ok(bytes.into()) }).boxed());
        let range = 0..meta.size;
        Ok(GetResult { payload, meta, range, attributes: Attributes::default(), extensions: Default::default() })
    }
}

/// Returns the entries of a directory; empty if it does not exist.
fn list_directory(directory: &FsPath) -> io::Result<Vec<(PathBuf, std::fs::FileType)>> {
    match disk::list(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}

/// Treats removing a missing file as success.
fn ignore_not_found(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Returns whether this is the temporary name of an object that is being written: its name, `#`, hexadecimal digits. No
/// object can have such a name.
fn is_staged(path: &FsPath) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let suffix = name.and_then(|name| name.rsplit_once('#')).map(|(_, suffix)| suffix);
    suffix.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

const STORE: &str = "files";

/// Converts an error of the operating system to one of an object.
fn object_error(location: &Path, source: io::Error) -> Error {
    let path = location.to_string();
    match source.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path, source: source.into() },
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: source.into() },
        _ => Error::Generic { store: STORE, source: source.into() },
    }
}

/// Runs work that blocks on the disk without blocking the executor.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    run_on_blocking_thread(work, |error| Error::Generic { store: STORE, source: error.into() }).await
}

/// Runs work as [`run_blocking`] does, for work that returns an I/O error.
async fn run_blocking_io(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    run_on_blocking_thread(work, io::Error::other).await
}

/// Runs work on a blocking thread; `lost` converts a panic to an error. Without a runtime, the calling thread blocks.
async fn run_on_blocking_thread<T: Send + 'static, E: Send + 'static>(
    work: impl FnOnce() -> std::result::Result<T, E> + Send + 'static,
    lost: fn(JoinError) -> E,
) -> std::result::Result<T, E> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await.map_err(lost)?,
        Err(_) => work(),
    }
}

fn unsupported(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: STORE.to_owned() }
}

impl fmt::Display for LocalObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STORE} in {}", self.0.root.display())
    }
}

#[async_trait]
impl ObjectStore for LocalObjectStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (inner, location) = (Arc::clone(&self.0), location.clone());
        let put = move || {
            let put = inner.put(&inner.file_path(&location), &payload, &options.mode);
            put.map_err(|error| object_error(&location, error))
        };
        run_blocking(put).await?;
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(unsupported("multipart upload"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (inner, location) = (Arc::clone(&self.0), location.clone());
        run_blocking(move || inner.get(location, &options)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let inner = Arc::clone(&self.0);
        let delete = move |location: Path| {
            let inner = Arc::clone(&inner);
            run_blocking(move || match disk::remove_file(&inner.file_path(&location)) {
                Ok(()) => Ok(location),
                Err(error) => Err(object_error(&location, error)),
            })
        };
        locations.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, prefix) = (Arc::clone(&self.0), prefix.cloned().unwrap_or_default());
        let listed = run_blocking(move || {
            inner
                .list(&inner.file_path(&prefix), true)
                .map_err(|error| object_error(&prefix, error))
                .map(|found| found.objects)
        });
        futures::stream::once(listed).map_ok(|objects| futures::stream::iter(objects).map(Ok)).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (inner, prefix) = (Arc::clone(&self.0), prefix.cloned().unwrap_or_default());
        run_blocking(move || inner.list(&inner.file_path(&prefix), false).map_err(|error| object_error(&prefix, error)))
            .await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(unsupported("copy"))
    }
}
