//! Objects as files of this machine.
//!
//! An object is written under a name that no object has, synced, and given its own name; then its directory is synced,
//! and every directory on the way to it that this process has not synced before: another may have died after it made one.
//! What could not be synced is given up and never synced again: a second try may succeed without the bytes.
//!
//! Not the local store of the crate `object_store`, for three reasons: it leaves an object in place of which it could not
//! sync the directory; it trusts directories that are there already; and it has no seam at which a test can fail the n-th
//! system call.

use std::collections::HashSet;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
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
use tokio::task::JoinError;

use crate::durable::{self, disk};
use crate::limits::PUT_TRIES_MAX;

/// The objects under one directory.
#[derive(Clone, Debug)]
pub(crate) struct LocalObjectStore(Arc<LocalObjectStoreInner>);

#[derive(Debug)]
struct LocalObjectStoreInner {
    root: PathBuf,
    /// Directories that this process knows to be on the disk, with all those on the way to them.
    synced: Mutex<HashSet<PathBuf>>,
}

impl LocalObjectStore {
    /// The objects under `root`, which must be a directory.
    pub(crate) fn new(root: &FsPath) -> io::Result<LocalObjectStore> {
        let root = std::path::absolute(root)?;
        if !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(LocalObjectStore(Arc::new(LocalObjectStoreInner { root, synced: Mutex::default() })))
    }

    /// Takes away what puts that were killed half-way left in a folder and below. Puts that are under way there fail.
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

    /// Makes an object that is there already durable, with the folders on the way to it.
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

    /// Has the disk hold what was deleted directly in a folder. One that is not there holds nothing.
    pub(super) fn sync_folder(&self, folder: &str) -> io::Result<()> {
        ignore_not_found(disk::sync_directory(&self.0.root.join(folder)))
    }

    /// Removes a folder and all objects in it, in one durable step as others see it.
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
            // Where there are no locks, who reads slowly finds an error, not another's bytes.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        // It may have been deleted between being opened and being locked.
        if file.metadata()?.nlink() == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(ObjectPin { _file: Some(file) })
    }

    /// Deletes an object that nobody has pinned; says whether it is gone.
    pub(super) fn delete_unless_pinned(&self, name: &str) -> io::Result<bool> {
        let path = self.0.root.join(name);
        let file = disk::open(&path);
        if file.as_ref().is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock))) {
            return Ok(false);
        }
        ignore_not_found(disk::remove_file(&path)).map(|()| true)
    }
}

/// Keeps an object there for as long as it lives.
#[derive(Debug)]
pub(crate) struct ObjectPin {
    /// Locked; none in a store without locks.
    _file: Option<File>,
}

impl ObjectPin {
    /// Keeps nothing.
    pub(super) fn none() -> ObjectPin {
        ObjectPin { _file: None }
    }
}

impl LocalObjectStoreInner {
    fn file_path(&self, location: &Path) -> PathBuf {
        location.parts().fold(self.root.clone(), |path, part| path.join(part.as_ref()))
    }

    fn lock_synced(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that a directory is there and on the disk.
    fn ensure_directory(&self, path: &FsPath) -> io::Result<()> {
        if self.lock_synced().contains(path) && path.is_dir() {
            return Ok(());
        }
        durable::create_directories_below(&self.root, path)?;
        self.lock_synced().insert(path.to_owned());
        Ok(())
    }

    /// Writes an object; `path` is the file's. Somebody's sweep may take what is being written for what a killed process
    /// left: then it is written once more.
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
        // Told without writing it all first; the link below decides between two at once.
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
            // Nobody may build on a name of which it is not known whether the disk has it.
            if *mode == PutMode::Create {
                let _ = disk::remove_file(path);
            }
        })
    }

    /// An object as a listing shows it; none where the file is gone, or is none.
    fn stat(&self, path: &FsPath) -> io::Result<Option<ObjectMeta>> {
        let data = match std::fs::metadata(path) {
            Ok(data) if data.is_file() => data,
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(location) = self.location(path) else { return Ok(None) };
        let last_modified = data.modified().unwrap_or(SystemTime::UNIX_EPOCH).into();
        Ok(Some(ObjectMeta { location, last_modified, size: data.len(), e_tag: None, version: None }))
    }

    /// The object of a file; none where no object can have that name.
    fn location(&self, path: &FsPath) -> Option<Path> {
        let name = path.strip_prefix(&self.root).ok()?.to_str()?;
        Path::parse(name).ok().filter(|_| !is_staged(path))
    }

    /// The objects below a directory, or directly in it with the directories there.
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

/// What is in a directory; nothing where there is none.
fn list_directory(directory: &FsPath) -> io::Result<Vec<(PathBuf, std::fs::FileType)>> {
    match disk::list(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}

/// What is gone already need not be removed.
fn ignore_not_found(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether this is a name under which an object is written before it is one: its name, `#`, hexadecimal digits. No object
/// can have such a name.
fn is_staged(path: &FsPath) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let suffix = name.and_then(|name| name.rsplit_once('#')).map(|(_, suffix)| suffix);
    suffix.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

const STORE: &str = "files";

/// What the operating system said, of an object.
fn object_error(location: &Path, source: io::Error) -> Error {
    let path = location.to_string();
    match source.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path, source: source.into() },
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: source.into() },
        _ => Error::Generic { store: STORE, source: source.into() },
    }
}

/// Runs what waits for the disk where it keeps nobody else from running.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    run_on_blocking_thread(work, |error| Error::Generic { store: STORE, source: error.into() }).await
}

/// As [`run_blocking`], for work whose error is what the operating system said.
async fn run_blocking_io(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    run_on_blocking_thread(work, io::Error::other).await
}

/// Runs work on a thread that may wait; `lost` makes an error of its panic. Without a runtime the thread may wait.
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
