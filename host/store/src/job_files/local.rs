//! The files of jobs in the state directory: `jobs/<job>/output/<path>`, `jobs/<job>/logged/<step>-<name>.<kind>`,
//! `jobs/<job>/attempt-<number>.log` and `jobs/<job>/attempt-<number>.calls`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::{AttemptLog, JobFiles, check_job};
use crate::directory_size::tree_bytes;
use crate::durable;
use crate::error::StoreError;
use crate::limits::OUTPUTS_LISTED_MAX;
use crate::logged_items::{LOGGED_FOLDER, LoggedKey, StoredItem};
use crate::outputs::{OUTPUT_FOLDER, OutputFile, is_output_path};
use crate::regular_file;

/// The files of jobs in one state directory.
#[derive(Clone, Debug)]
pub struct LocalJobFiles {
    root: PathBuf,
}

impl LocalJobFiles {
    /// Returns the files of the jobs in the state directory `root`.
    pub fn new(root: impl Into<PathBuf>) -> LocalJobFiles {
        LocalJobFiles { root: root.into() }
    }

    fn directory_of(&self, job: &str) -> PathBuf {
        self.root.join("jobs").join(job)
    }

    fn outputs_of(&self, job: &str) -> PathBuf {
        self.directory_of(job).join(OUTPUT_FOLDER)
    }

    fn logged_items_of(&self, job: &str) -> PathBuf {
        self.directory_of(job).join(LOGGED_FOLDER)
    }

    fn log_path(&self, job: &str, attempt: u32) -> PathBuf {
        self.directory_of(job).join(format!("attempt-{attempt}.log"))
    }

    fn recording_path(&self, job: &str, attempt: u32) -> PathBuf {
        self.directory_of(job).join(format!("attempt-{attempt}.calls"))
    }
}

impl JobFiles for LocalJobFiles {
    fn write_output(&self, job: &str, path: &str, data: &[u8]) -> Result<(), StoreError> {
        let path = self.outputs_of(job).join(path);
        let directory = path.parent().unwrap_or(&path);
        durable::create_directories_below(&self.root, directory).map_err(StoreError::io(directory))?;
        durable::replace(&path, data).map_err(StoreError::io(&path))
    }

    fn list_outputs(&self, job: &str) -> io::Result<Vec<OutputFile>> {
        let mut found = Vec::new();
        let mut left = vec![(self.outputs_of(job), String::new())];
        while let Some((directory, prefix)) = left.pop() {
            let entries = match fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                let entry = entry?;
                let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
                // A file that is being written has a name that is not a valid output path.
                if !is_output_path(&path) || found.len() >= OUTPUTS_LISTED_MAX {
                    continue;
                }
                // Links are not followed: no plugin can create one.
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    left.push((entry.path(), format!("{path}/")));
                } else if kind.is_file() {
                    found.push(OutputFile { path, bytes: entry.metadata()?.len() });
                }
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    fn open_output(&self, job: &str, path: &str) -> io::Result<Option<(File, u64)>> {
        if !is_output_path(path) {
            return Ok(None);
        }
        let path = self.outputs_of(job).join(path);
        // A component of the path that is a file, not a folder, also means that the output does not exist.
        let absent = |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        let look = fs::symlink_metadata(&path);
        match look.and_then(|data| if data.is_file() { regular_file::open(&path).map(Some) } else { Ok(None) }) {
            Ok(None) => Ok(None),
            // Take the size from the opened file, because the path may have been replaced since.
            Ok(Some(file)) => file.metadata().map(|data| Some((file, data.len()))),
            Err(error) if absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn output_directory(&self, job: &str) -> io::Result<PathBuf> {
        Ok(self.outputs_of(job))
    }

    fn write_logged_item(&self, job: &str, key: &LoggedKey, data: &[u8]) -> Result<(), StoreError> {
        let directory = self.logged_items_of(job);
        durable::create_directories_below(&self.root, &directory).map_err(StoreError::io(&directory))?;
        let path = directory.join(key.file_name());
        durable::replace(&path, data).map_err(StoreError::io(&path))
    }

    fn list_logged_items(&self, job: &str) -> io::Result<Vec<StoredItem>> {
        let entries = match fs::read_dir(self.logged_items_of(job)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            // A file that is being written has a name that no item has.
            let Some(key) = LoggedKey::from_file_name(&entry.file_name().to_string_lossy()) else { continue };
            let data = entry.metadata()?;
            if !data.is_file() {
                continue;
            }
            let written = data.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let logged_ms = u64::try_from(written.as_millis()).unwrap_or(u64::MAX);
            found.push(StoredItem { key, bytes: data.len(), logged_ms });
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    fn read_logged_item(&self, job: &str, key: &LoggedKey) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        match regular_file::open(&self.logged_items_of(job).join(key.file_name())) {
            Ok(mut file) => file.read_to_end(&mut bytes).map(|_| Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open_log(&self, job: &str, attempt: u32) -> io::Result<Box<dyn AttemptLog>> {
        open_to_append(&self.log_path(job, attempt))
    }

    fn log_bytes(&self, job: &str, attempt: u32) -> io::Result<u64> {
        open_if_exists(&self.log_path(job, attempt))?.map_or(Ok(0), |file| Ok(file.metadata()?.len()))
    }

    fn read_log(&self, job: &str, attempt: u32, range: Range<u64>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some(mut file) = open_if_exists(&self.log_path(job, attempt))? {
            file.seek(SeekFrom::Start(range.start))?;
            file.take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }

    fn create_recording(&self, job: &str, attempt: u32) -> io::Result<Box<dyn AttemptLog>> {
        let path = self.recording_path(job, attempt);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) | Ok(()) => {}
        }
        open_to_append(&path)
    }

    fn read_recording(&self, job: &str, attempt: u32) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some(mut file) = open_if_exists(&self.recording_path(job, attempt))? {
            file.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }

    fn job_bytes(&self, job: &str) -> Result<u64, StoreError> {
        tree_bytes(&self.directory_of(job))
    }

    /// Removes the job's directory. For other processes it vanishes in one durable step.
    fn remove(&self, job: &str) -> Result<u64, StoreError> {
        check_job(job)?;
        let directory = self.directory_of(job);
        let freed = tree_bytes(&directory)?;
        durable::remove_directory(&directory).map_err(StoreError::io(&directory))?;
        Ok(freed)
    }
}

fn open_to_append(path: &Path) -> io::Result<Box<dyn AttemptLog>> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let bytes = file.metadata()?.len();
    Ok(Box::new(LogFile { file, bytes }))
}

fn open_if_exists(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A log in a file.
#[derive(Debug)]
struct LogFile {
    file: File,
    bytes: u64,
}

impl AttemptLog for LogFile {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            // A partial line must not become the beginning of the next one.
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}
