//! The files of jobs in an object store.
//!
//! ```text
//! jobs/<job>/output/<path>                  an output
//! jobs/<job>/logged/<step>-<name>.<kind>    a logged item
//! jobs/<job>/attempt-<number>/<first byte>  a chunk of a log, with a number of 20 digits
//! jobs/<job>/calls-<number>/<first byte>    a chunk of a recording
//! ```

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::{AttemptLog, JobFiles, check_job};
use crate::digest::Digest;
use crate::durable::{self, disk};
use crate::error::StoreError;
use crate::limits::{FETCHED_BYTES_MAX, OUTPUTS_LISTED_MAX};
use crate::logged_items::{LOGGED_FOLDER, LoggedKey, StoredItem};
use crate::objects::{BlockingObjects, ObjectInfo, PutOutcome};
use crate::outputs::{OUTPUT_FOLDER, OutputFile, is_output_path};
use crate::records::{JobLease, LogRecords};
use crate::versions::fetch_cache::FetchCache;

mod recorded_log;

/// Bytes of a log that are appended before they become a chunk without a flush.
const CHUNK_BYTES: usize = 64 << 10;

/// The files of jobs in one object store.
#[derive(Clone, Debug)]
pub struct ObjectJobFiles {
    objects: BlockingObjects,
    cache: FetchCache,
    /// The records of the logs of running attempts, if they are not chunks in the object store.
    logs: Option<Arc<dyn LogRecords>>,
}

impl ObjectJobFiles {
    /// Returns the files of jobs in `objects`. Outputs that are opened are fetched into `cache`.
    pub fn new(objects: BlockingObjects, cache: impl Into<PathBuf>) -> ObjectJobFiles {
        ObjectJobFiles { objects, cache: FetchCache::new(cache.into(), FETCHED_BYTES_MAX), logs: None }
    }

    /// Keeps the logs of running attempts in records, which all servers read at once. Finished logs are objects.
    #[must_use]
    pub fn with_recorded_logs(self, logs: Arc<dyn LogRecords>) -> ObjectJobFiles {
        ObjectJobFiles { logs: Some(logs), ..self }
    }

    /// Returns the bytes of a log that are in the object store.
    fn stored_log_bytes(&self, job: &str, attempt: u32) -> io::Result<u64> {
        Ok(self.chunks(&log_folder(job, attempt))?.last().map_or(0, |(first, bytes)| first + bytes))
    }

    /// Stores a chunk of a log that is not there yet.
    fn store_chunk(&self, folder: &str, first_byte: u64, bytes: Vec<u8>) -> io::Result<()> {
        let name = chunk_name(folder, first_byte);
        let (object, content) = (name.clone(), Bytes::from(bytes));
        let put = self.objects.wait(|objects| async move { objects.create_unique(&object, content).await });
        if put.map_err(io::Error::other)? == PutOutcome::Taken {
            return Err(io::Error::other(format!("{name}: another process writes this log")));
        }
        Ok(())
    }

    /// Returns the chunks in the folder of a log: the first byte and the size of each, in order.
    fn chunks(&self, folder: &str) -> io::Result<Vec<(u64, u64)>> {
        let folder = folder.to_owned();
        let listed =
            self.objects.wait(|objects| async move { objects.list_flat(&folder).await }).map_err(io::Error::other)?;
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
            let chunk =
                self.objects.wait(|objects| async move { objects.get(&name).await }).map_err(io::Error::other)?;
            // The range is within the chunk, which is in memory.
            found.extend_from_slice(&chunk[(begin - first) as usize..(end - first) as usize]);
        }
        Ok(found)
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, StoreError> {
        let folder = folder.to_owned();
        self.objects.wait(|objects| async move { objects.list(&folder).await })
    }

    fn object_bytes(&self, name: String) -> io::Result<Option<Bytes>> {
        self.objects.wait(|objects| async move { objects.find(&name).await }).map_err(io::Error::other)
    }
}

/// Writes an output to a new file of this machine, and opens it for reading.
fn write_output_file(path: &Path, bytes: &[u8]) -> io::Result<File> {
    durable::create_directories(path.parent().unwrap_or(path))?;
    let file = disk::create_file(path, durable::PRIVATE_FILE_MODE)?;
    disk::write(&file, path, bytes)?;
    disk::sync(&file, path)?;
    disk::open(path)
}

fn output_folder(job: &str) -> String {
    format!("jobs/{job}/{OUTPUT_FOLDER}")
}

fn output_name(job: &str, path: &str) -> String {
    format!("{}/{path}", output_folder(job))
}

/// Returns the outputs among the objects of a job's folder of outputs.
fn outputs_of(job: &str, listed: &[ObjectInfo]) -> Vec<OutputFile> {
    let folder = output_folder(job);
    let output = |name: &str, bytes| {
        let path = name.strip_prefix(&folder)?.strip_prefix('/')?.to_owned();
        is_output_path(&path).then_some(OutputFile { path, bytes })
    };
    listed.iter().filter_map(|object| output(&object.name, object.size)).take(OUTPUTS_LISTED_MAX).collect()
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
        self.objects.wait(|objects| async move { objects.replace(&name, payload).await })
    }

    fn list_outputs(&self, job: &str) -> io::Result<Vec<OutputFile>> {
        Ok(outputs_of(job, &self.list(&output_folder(job)).map_err(io::Error::other)?))
    }

    fn open_output(&self, job: &str, path: &str) -> io::Result<Option<(File, u64)>> {
        if !is_output_path(path) {
            return Ok(None);
        }
        let Some(bytes) = self.object_bytes(output_name(job, path))? else { return Ok(None) };
        let staged = self.cache.stage().map_err(io::Error::other)?;
        // The file needs no name once it is open.
        Ok(Some((write_output_file(&staged.path().join("output"), &bytes)?, bytes.len() as u64)))
    }

    /// The directory is that of the outputs at the time of the call, and is used again until the job writes another one.
    fn output_directory(&self, job: &str) -> io::Result<PathBuf> {
        let listed = self.list(&output_folder(job)).map_err(io::Error::other)?;
        let state: Vec<_> = listed.iter().map(|it| format!("{} {} {}", it.name, it.size, it.written_ms)).collect();
        let id = format!("{job}-{}", &Digest::of(state.join("\n").as_bytes()).hex()[..32]);
        if listed.is_empty() {
            return Ok(self.cache.directory(&id));
        }
        let fetch = |directory: &Path| {
            for OutputFile { path, .. } in outputs_of(job, &listed) {
                let fetched = self.object_bytes(output_name(job, &path)).and_then(|bytes| match bytes {
                    Some(bytes) => write_output_file(&directory.join(&path), &bytes).map(drop),
                    None => Ok(()),
                });
                fetched.map_err(StoreError::io(directory))?;
            }
            Ok(())
        };
        let bytes = listed.iter().map(|object| object.size).sum();
        self.cache.get_or_fetch(&id, bytes, fetch).map_err(io::Error::other)
    }

    fn write_logged_item(&self, job: &str, key: &LoggedKey, data: &[u8]) -> Result<(), StoreError> {
        let (name, payload) = (logged_item_name(job, key), Bytes::copy_from_slice(data).into());
        self.objects.wait(|objects| async move { objects.replace(&name, payload).await })
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

    fn open_leased_log(&self, lease: &JobLease) -> io::Result<Box<dyn AttemptLog>> {
        match &self.logs {
            Some(logs) => recorded_log::open(self, logs, lease),
            None => self.open_log(&lease.job, lease.attempt),
        }
    }

    fn log_bytes(&self, job: &str, attempt: u32) -> io::Result<u64> {
        let logs = self.logs.as_ref();
        let recorded = logs.map(|logs| logs.log_extent(job, attempt)).transpose().map_err(io::Error::other)?;
        match recorded.flatten() {
            Some(extent) => Ok(extent.end),
            None => self.stored_log_bytes(job, attempt),
        }
    }

    /// The newest lines of a running attempt are read without a request to the object store.
    fn read_log(&self, job: &str, attempt: u32, range: Range<u64>) -> io::Result<Vec<u8>> {
        let Some(logs) = &self.logs else { return self.read_chunks(&log_folder(job, attempt), range) };
        if let Some(recorded) = recorded_log::read(&**logs, job, attempt, &range)? {
            return Ok(recorded);
        }
        let mut bytes = self.read_chunks(&log_folder(job, attempt), range.clone())?;
        let rest = range.start + bytes.len() as u64..range.end;
        bytes.extend(recorded_log::read_chunks(&**logs, job, attempt, &rest)?);
        Ok(bytes)
    }

    fn create_recording(&self, job: &str, attempt: u32) -> io::Result<Box<dyn AttemptLog>> {
        let folder = recording_folder(job, attempt);
        let left = folder.clone();
        self.objects.wait(|objects| async move { objects.delete_folder(&left).await }).map_err(io::Error::other)?;
        Ok(Box::new(ObjectLog { files: self.clone(), folder, sent_bytes: 0, pending: Vec::new() }))
    }

    fn read_recording(&self, job: &str, attempt: u32) -> io::Result<Vec<u8>> {
        self.read_chunks(&recording_folder(job, attempt), 0..u64::MAX)
    }

    fn job_bytes(&self, job: &str) -> Result<u64, StoreError> {
        Ok(self.list(&format!("jobs/{job}"))?.iter().map(|object| object.size).sum())
    }

    fn remove(&self, job: &str) -> Result<u64, StoreError> {
        check_job(job)?;
        let folder = format!("jobs/{job}");
        let listed = self.list(&folder)?;
        self.objects.wait(|objects| async move { objects.delete_folder(&folder).await })?;
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
        let put = self.files.objects.wait(|objects| async move { objects.create(&object, payload).await });
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
