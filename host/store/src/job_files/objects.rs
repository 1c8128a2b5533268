//! The files of jobs in an object store.
//!
//! ```text
//! jobs/<job>/output/<path>                  an output
//! jobs/<job>/logged/<step>-<name>.<kind>    a logged item
//! jobs/<job>/attempt-<number>/<first byte>  a chunk of a log, with a number of 20 digits
//! jobs/<job>/calls-<number>/<first byte>    a chunk of a recording
//! ```

use std::fs::File;
use std::io::{self, Seek, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use bytes::Bytes;
use tokio::runtime::Handle;

use super::{AttemptLog, JobFiles, check_job};
use crate::durable::{self, disk};
use crate::error::StoreError;
use crate::limits::OUTPUTS_LISTED_MAX;
use crate::logged_items::{LOGGED_FOLDER, LoggedKey, StoredItem};
use crate::objects::{ObjectInfo, ObjectStorage, PutOutcome};
use crate::outputs::{OUTPUT_FOLDER, OutputFile, is_output_path};

/// Bytes of a log that are appended before they become a chunk without a flush.
const CHUNK_BYTES: usize = 64 << 10;

/// The files of jobs in one object store.
#[derive(Clone, Debug)]
pub struct ObjectJobFiles {
    objects: ObjectStorage,
    cache: PathBuf,
    runtime: Handle,
}

impl ObjectJobFiles {
    /// Returns the files of jobs in `objects`. Outputs that are opened are fetched into `cache`. `runtime` drives the
    /// object store. It must not be the calling runtime, whose thread is blocked meanwhile.
    pub fn new(objects: ObjectStorage, cache: impl Into<PathBuf>, runtime: Handle) -> ObjectJobFiles {
        ObjectJobFiles { objects, cache: cache.into(), runtime }
    }

    /// Waits for work on the object store. Logs are written by asynchronous tasks, in which `Handle::block_on` panics.
    fn wait<T: Send + 'static, W: Future<Output = Result<T, StoreError>> + Send + 'static>(
        &self,
        work: impl FnOnce(ObjectStorage) -> W,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let work = work(self.objects.clone());
        self.runtime.spawn(async move {
            let _ = sender.send(work.await);
        });
        receiver.recv().unwrap_or_else(|_| Err(StoreError::Interrupted { name: "of a job".to_owned() }))
    }

    /// Returns the chunks in the folder of a log: the first byte and the size of each, in order.
    fn chunks(&self, folder: &str) -> io::Result<Vec<(u64, u64)>> {
        let folder = folder.to_owned();
        let listed = self.wait(|objects| async move { objects.list_flat(&folder).await }).map_err(io::Error::other)?;
        let chunk = |name: &str| name.rsplit('/').next()?.parse().ok();
        Ok(listed.iter().filter_map(|object| Some((chunk(&object.name)?, object.size))).collect())
    }

    /// Returns bytes of a log: those of the range that exist.
    fn read_chunks(&self, folder: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        for (first, bytes) in self.chunks(folder)? {
            let (begin, end) = (range.start.max(first), range.end.min(first + bytes));
            if begin >= end {
                continue;
            }
            let name = chunk_name(folder, first);
            let chunk = self.wait(|objects| async move { objects.get(&name).await }).map_err(io::Error::other)?;
            // The range is within the chunk, which is in memory.
            found.extend_from_slice(&chunk[(begin - first) as usize..(end - first) as usize]);
        }
        Ok(found)
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, StoreError> {
        let folder = folder.to_owned();
        self.wait(|objects| async move { objects.list(&folder).await })
    }

    /// Writes an output to a new file of this machine.
    fn fetch_output(&self, bytes: &[u8], path: &Path) -> io::Result<File> {
        durable::create_directories(path.parent().unwrap_or(&self.cache))?;
        disk::create_file(path, durable::PRIVATE_FILE_MODE)?;
        let mut file = File::options().read(true).write(true).open(path)?;
        file.write_all(bytes)?;
        file.rewind()?;
        Ok(file)
    }

    fn object_bytes(&self, name: String) -> io::Result<Option<Bytes>> {
        match self.wait(|objects| async move { objects.get(&name).await }) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

fn output_name(job: &str, path: &str) -> String {
    format!("jobs/{job}/{OUTPUT_FOLDER}/{path}")
}

fn logged_item_name(job: &str, key: &LoggedKey) -> String {
    format!("jobs/{job}/{LOGGED_FOLDER}/{}", key.file_name())
}

fn log_folder(job: &str, attempt: u32) -> String {
    format!("jobs/{job}/attempt-{attempt}")
}

fn recording_folder(job: &str, attempt: u32) -> String {
    format!("jobs/{job}/calls-{attempt}")
}

impl JobFiles for ObjectJobFiles {
    fn write_output(&self, job: &str, path: &str, data: &[u8]) -> Result<(), StoreError> {
        let (name, payload) = (output_name(job, path), Bytes::copy_from_slice(data).into());
        self.wait(|objects| async move { objects.replace(&name, payload).await })
    }

    fn list_outputs(&self, job: &str) -> io::Result<Vec<OutputFile>> {
        let folder = format!("jobs/{job}/{OUTPUT_FOLDER}");
        let listed = self.list(&folder).map_err(io::Error::other)?;
        let output = |name: &str, bytes| {
            let path = name.strip_prefix(&folder)?.strip_prefix('/')?.to_owned();
            is_output_path(&path).then_some(OutputFile { path, bytes })
        };
        let outputs = listed.iter().filter_map(|object| output(&object.name, object.size));
        Ok(outputs.take(OUTPUTS_LISTED_MAX).collect())
    }

    fn open_output(&self, job: &str, path: &str) -> io::Result<Option<(File, u64)>> {
        if !is_output_path(path) {
            return Ok(None);
        }
        let Some(bytes) = self.object_bytes(output_name(job, path))? else { return Ok(None) };
        let local = self.cache.join(durable::unique_suffix());
        let file = self.fetch_output(&bytes, &local);
        // The file needs no name once it is open.
        let _ = disk::remove_file(&local);
        Ok(Some((file?, bytes.len() as u64)))
    }

    fn output_directory(&self, job: &str) -> io::Result<PathBuf> {
        let directory = self.cache.join(format!("{job}-{}", durable::unique_suffix()));
        for output in self.list_outputs(job)? {
            if let Some(bytes) = self.object_bytes(output_name(job, &output.path))? {
                self.fetch_output(&bytes, &directory.join(&output.path))?;
            }
        }
        Ok(directory)
    }

    fn write_logged_item(&self, job: &str, key: &LoggedKey, data: &[u8]) -> Result<(), StoreError> {
        let (name, payload) = (logged_item_name(job, key), Bytes::copy_from_slice(data).into());
        self.wait(|objects| async move { objects.replace(&name, payload).await })
    }

    fn list_logged_items(&self, job: &str) -> io::Result<Vec<StoredItem>> {
        let listed = self.list(&format!("jobs/{job}/{LOGGED_FOLDER}")).map_err(io::Error::other)?;
        let item = |object: ObjectInfo| {
            let key = LoggedKey::from_file_name(object.name.rsplit('/').next()?)?;
            Some(StoredItem { key, bytes: object.size, logged_ms: object.written_ms })
        };
        let mut found: Vec<StoredItem> = listed.into_iter().filter_map(item).collect();
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    fn read_logged_item(&self, job: &str, key: &LoggedKey) -> io::Result<Option<Vec<u8>>> {
        Ok(self.object_bytes(logged_item_name(job, key))?.map(Vec::from))
    }

    fn open_log(&self, job: &str, attempt: u32) -> io::Result<Box<dyn AttemptLog>> {
        let (files, folder) = (self.clone(), log_folder(job, attempt));
        let bytes = self.log_bytes(job, attempt)?;
        Ok(Box::new(ObjectLog { files, folder, sent_bytes: bytes, pending: Vec::new() }))
    }

    fn log_bytes(&self, job: &str, attempt: u32) -> io::Result<u64> {
        Ok(self.chunks(&log_folder(job, attempt))?.last().map_or(0, |(first, bytes)| first + bytes))
    }

    fn read_log(&self, job: &str, attempt: u32, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.read_chunks(&log_folder(job, attempt), range)
    }

    fn create_recording(&self, job: &str, attempt: u32) -> io::Result<Box<dyn AttemptLog>> {
        let folder = recording_folder(job, attempt);
        let left = folder.clone();
        self.wait(|objects| async move { objects.delete_folder(&left).await }).map_err(io::Error::other)?;
        Ok(Box::new(ObjectLog { files: self.clone(), folder, sent_bytes: 0, pending: Vec::new() }))
    }

    fn read_recording(&self, job: &str, attempt: u32) -> io::Result<Vec<u8>> {
        self.read_chunks(&recording_folder(job, attempt), 0..u64::MAX)
    }

    fn remove(&self, job: &str) -> Result<u64, StoreError> {
        check_job(job)?;
        let folder = format!("jobs/{job}");
        let listed = self.list(&folder)?;
        self.wait(|objects| async move { objects.delete_folder(&folder).await })?;
        Ok(listed.iter().map(|object| object.size).sum())
    }
}

fn chunk_name(folder: &str, first_byte: u64) -> String {
    format!("{folder}/{first_byte:020}")
}

/// A log in chunks.
#[derive(Debug)]
struct ObjectLog {
    files: ObjectJobFiles,
    folder: String,
    /// Bytes in chunks.
    sent_bytes: u64,
    /// Bytes after them.
    pending: Vec<u8>,
}

impl AttemptLog for ObjectLog {
    fn bytes(&self) -> u64 {
        self.sent_bytes + self.pending.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.pending.len() + bytes.len() > CHUNK_BYTES {
            self.flush()?;
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let name = chunk_name(&self.folder, self.sent_bytes);
        let (object, payload) = (name.clone(), Bytes::copy_from_slice(&self.pending).into());
        let put = self.files.wait(|objects| async move { objects.create(&object, payload).await });
        if put.map_err(io::Error::other)? == PutOutcome::Taken {
            return Err(io::Error::other(format!("{name}: another process writes this log")));
        }
        self.sent_bytes += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.flush()
    }
}
