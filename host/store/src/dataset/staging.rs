//! The staging directory of an import: columns are written to files, so that memory holds only buffers, however large
//! the dataset is.
//!
//! Every byte is counted before it is written: against the limits of a dataset, the free disk space and the caller's
//! quota. Temporary files, such as texts before they are padded, are in the same directory, which the caller removes.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::manifest::{DatasetManifest, MANIFEST_FILE};
use super::map::ColumnBytes;
use crate::durable::{self, disk};
use crate::error::{DatasetError, StoreError};
use crate::limits::{
    DATASET_BYTES_MAX, DATASET_NAMES_MAX, DISK_RESERVE_BYTES, INGEST_BUFFER_BYTES_MAX, INGEST_BUFFER_BYTES_MIN,
    INGEST_BUFFERS_BYTES_MAX, INGEST_EXPANSION_MAX, INGEST_EXPANSION_UNCHECKED_BYTES, UPLOAD_PATH_PARTS_MAX,
};

/// Bytes that are first reserved; later reservations are half of what was written.
const RESERVED_BYTES_MIN: u64 = 1 << 20;
/// Maximum bytes that are reserved ahead.
const RESERVED_BYTES_MAX: u64 = 1 << 30;

/// Checks whether a number of bytes can be stored.
pub(super) type QuotaCheck<'a> = dyn Fn(u64) -> Result<(), StoreError> + 'a;

/// A directory for the columns of one dataset.
pub(super) struct StagingArea<'a> {
    directory: PathBuf,
    /// Size in bytes of the imported files.
    source_bytes: u64,
    quota_check: &'a QuotaCheck<'a>,
    files_made: Cell<u64>,
    files: Cell<usize>,
    written: Cell<u64>,
    reserved: Cell<u64>,
}

impl<'a> StagingArea<'a> {
    /// Returns a staging area in `directory`, which must exist, for the files of `folder`.
    pub(super) fn new(
        directory: &Path,
        folder: &Path,
        room: &'a QuotaCheck<'a>,
    ) -> Result<StagingArea<'a>, DatasetError> {
        Ok(StagingArea {
            directory: directory.to_owned(),
            source_bytes: source_bytes(folder, UPLOAD_PATH_PARTS_MAX)?,
            quota_check: room,
            files_made: Cell::new(0),
            files: Cell::new(0),
            written: Cell::new(0),
            reserved: Cell::new(0),
        })
    }

    /// Returns the limit on the total bytes of the columns.
    pub(super) fn bytes_max(&self) -> u64 {
        let expanded_max = self.source_bytes.saturating_mul(INGEST_EXPANSION_MAX);
        expanded_max.clamp(INGEST_EXPANSION_UNCHECKED_BYTES, DATASET_BYTES_MAX)
    }

    /// Refuses columns larger than a dataset can be, or than its files are allowed to expand to.
    pub(super) fn check_size(&self, what: &str, bytes: Option<u64>) -> Result<u64, DatasetError> {
        let max = self.bytes_max();
        let what = || what.to_owned();
        match bytes {
            Some(bytes) if bytes <= max => Ok(bytes),
            Some(_) if max < DATASET_BYTES_MAX => {
                let source_bytes = self.source_bytes;
                Err(DatasetError::Expands { what: what(), source_bytes, max, ratio: INGEST_EXPANSION_MAX })
            }
            Some(_) | None => Err(DatasetError::TooLarge { what: what(), max: DATASET_BYTES_MAX, unit: "bytes" }),
        }
    }

    /// Returns a new empty file. `writers` files are written at the same time and share one budget for buffers.
    pub(super) fn writer(&self, writers: usize) -> Result<ColumnWriter<'_>, DatasetError> {
        let files = self.files.get() + 1;
        // Each field can have one file being written while another is read.
        if files > 2 * DATASET_NAMES_MAX {
            let max = DATASET_NAMES_MAX as u64;
            return Err(DatasetError::TooLarge { what: "the dataset".to_owned(), max, unit: "arrays" });
        }
        let number = self.files_made.replace(self.files_made.get() + 1);
        let path = self.directory.join(format!(".column-{number}"));
        disk::create_file(&path, durable::PRIVATE_FILE_MODE).map_err(StoreError::io(&path))?;
        self.files.set(files);
        Ok(self.writer_at(path, 0, writers))
    }

    fn writer_at(&self, path: PathBuf, bytes: u64, writers: usize) -> ColumnWriter<'_> {
        let capacity = INGEST_BUFFERS_BYTES_MAX / writers.max(1);
        let capacity = capacity.clamp(INGEST_BUFFER_BYTES_MIN, INGEST_BUFFER_BYTES_MAX);
        ColumnWriter { staging: self, path, buffer: Vec::new(), capacity, bytes }
    }

    /// Appends the bytes of `from` to `to`.
    pub(super) fn append(&self, to: &mut StagedColumn, from: StagedColumn) -> Result<(), DatasetError> {
        let mut writer = self.writer_at(to.path.clone(), to.bytes, 1);
        let mut reader = from.reader()?;
        writer.copy(&mut reader, from.bytes, &from)?;
        *to = writer.finish()?;
        self.remove(from)
    }

    /// Removes a file that is no longer needed.
    pub(super) fn remove(&self, data: StagedColumn) -> Result<(), DatasetError> {
        disk::remove_file(&data.path).map_err(StoreError::io(&data.path))?;
        self.files.set(self.files.get().saturating_sub(1));
        self.written.set(self.written.get().saturating_sub(data.bytes));
        self.reserved.set(self.reserved.get().saturating_sub(data.bytes));
        Ok(())
    }

    /// Completes the directory as a version: columns under their names, then the manifest, each synced. `columns` are
    /// those of the manifest, in its order. The caller syncs the directory itself.
    pub(super) fn complete<'c>(
        &self,
        manifest: &DatasetManifest,
        columns: impl Iterator<Item = &'c StagedColumn>,
    ) -> Result<(), StoreError> {
        for (column, data) in manifest.columns.iter().zip(columns) {
            let path = &data.path;
            let file = disk::open(path).map_err(StoreError::io(path))?;
            disk::sync(&file, path).map_err(StoreError::io(path))?;
            disk::rename(path, &self.directory.join(&column.file)).map_err(StoreError::io(path))?;
        }
        let path = self.directory.join(MANIFEST_FILE);
        durable::write_new(&path, &manifest.encode()).map_err(StoreError::io(&path))
    }

    /// Counts bytes before they are written, and reserves space ahead of them.
    fn reserve(&self, bytes: u64) -> Result<(), DatasetError> {
        let written = self.written.get().saturating_add(bytes);
        if written > self.reserved.get() {
            let needed = written - self.reserved.get();
            let mut ahead = (written / 2).clamp(RESERVED_BYTES_MIN, RESERVED_BYTES_MAX).max(needed);
            loop {
                match self.check_quota(ahead) {
                    Ok(()) => break,
                    Err(_) if ahead > needed => ahead = needed.max(ahead / 4),
                    Err(error) => return Err(error),
                }
            }
            self.reserved.set(self.reserved.get() + ahead);
        }
        self.written.set(written);
        Ok(())
    }

    fn check_quota(&self, bytes: u64) -> Result<(), DatasetError> {
        let free = durable::free_bytes(&self.directory).map_err(StoreError::io(&self.directory))?;
        let needed = bytes.saturating_add(DISK_RESERVE_BYTES);
        if free < needed {
            return Err(DatasetError::DiskFull { needed, free });
        }
        Ok((self.quota_check)(bytes)?)
    }
}

/// Returns the bytes of the files in a folder and `depth` levels below. Links are followed, as when files are read.
fn source_bytes(folder: &Path, depth: usize) -> Result<u64, DatasetError> {
    let mut sum = 0u64;
    for entry in folder.read_dir().map_err(StoreError::io(folder))? {
        let path = entry.map_err(StoreError::io(folder))?.path();
        // A broken link counts as 0; code that needs the file reports it as missing.
        let Ok(data) = fs::metadata(&path) else { continue };
        let bytes = match depth.checked_sub(1) {
            Some(depth) if data.is_dir() => source_bytes(&path, depth)?,
            _ if data.is_file() => data.len(),
            _ => 0,
        };
        sum = sum.saturating_add(bytes);
    }
    Ok(sum)
}

/// A writer of a column. Its file is open only while its buffer is flushed, so a dataset can have more columns than a
/// process can have open files.
pub(super) struct ColumnWriter<'s> {
    staging: &'s StagingArea<'s>,
    path: PathBuf,
    buffer: Vec<u8>,
    capacity: usize,
    bytes: u64,
}

impl ColumnWriter<'_> {
    /// Returns the bytes so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends bytes.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), DatasetError> {
        self.bytes += bytes.len() as u64;
        while self.buffer.len() + bytes.len() > self.capacity {
            let (piece, rest) = bytes.split_at(self.capacity - self.buffer.len());
            self.buffer.extend_from_slice(piece);
            self.flush()?;
            bytes = rest;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends `count` zeros.
    pub(super) fn push_zeros(&mut self, mut count: u64) -> Result<(), DatasetError> {
        const ZEROS: [u8; 4096] = [0; 4096];
        while count > 0 {
            let piece = &ZEROS[..count.min(ZEROS.len() as u64) as usize];
            self.push(piece)?;
            count -= piece.len() as u64;
        }
        Ok(())
    }

    /// Appends the next `bytes` bytes of a reader of staged data.
    pub(super) fn copy(
        &mut self,
        reader: &mut impl Read,
        mut bytes: u64,
        of: &StagedColumn,
    ) -> Result<(), DatasetError> {
        let mut piece = vec![0; bytes.min(INGEST_BUFFER_BYTES_MAX as u64) as usize];
        while bytes > 0 {
            let piece = &mut piece[..bytes.min(INGEST_BUFFER_BYTES_MAX as u64) as usize];
            reader.read_exact(piece).map_err(StoreError::io(&of.path))?;
            self.push(piece)?;
            bytes -= piece.len() as u64;
        }
        Ok(())
    }

    /// Flushes the buffer and returns the complete data.
    pub(super) fn finish(mut self) -> Result<StagedColumn, DatasetError> {
        self.flush()?;
        Ok(StagedColumn { path: self.path, bytes: self.bytes })
    }

    fn flush(&mut self) -> Result<(), DatasetError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.staging.reserve(self.buffer.len() as u64)?;
        let file = disk::append(&self.path).map_err(StoreError::io(&self.path))?;
        disk::write(&file, &self.path, &self.buffer).map_err(StoreError::io(&self.path))?;
        self.buffer.clear();
        Ok(())
    }
}

/// The bytes of a column, in a file of the staging directory.
#[derive(Debug)]
pub(super) struct StagedColumn {
    path: PathBuf,
    bytes: u64,
}

impl StagedColumn {
    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Opens the file.
    pub(super) fn open(&self) -> Result<File, StoreError> {
        disk::open(&self.path).map_err(StoreError::io(&self.path))
    }

    /// Returns a reader from the beginning.
    pub(super) fn reader(&self) -> Result<BufReader<File>, StoreError> {
        Ok(BufReader::with_capacity(INGEST_BUFFER_BYTES_MAX, self.open()?))
    }

    /// Adds the file's path to a read error.
    pub(super) fn read_error(&self) -> impl FnOnce(io::Error) -> StoreError + '_ {
        StoreError::io(&self.path)
    }

    /// Maps the file, for reading in another order. Its pages are in the page cache.
    pub(super) fn map(&self) -> Result<ColumnBytes, StoreError> {
        ColumnBytes::map(&self.open()?).map_err(StoreError::io(&self.path))
    }
}
