//! Reads source files, plain or compressed, and tracks the position for errors.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::staging::ColumnWriter;
use crate::error::{DatasetError, StoreError};
use crate::limits::{DATASET_BYTES_MAX, DATASET_NAMES_MAX, INGEST_BUFFER_BYTES_MAX};
use crate::regular_file;

/// Returns the path of the file with this name, plain or compressed, or `None`.
pub(super) fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let candidates = [folder.join(name), folder.join(format!("{name}.gz"))];
    candidates.into_iter().find(|path| path.is_file())
}

/// Returns the folder's files `NAME.ending`, plain or compressed, by `NAME`, in order.
///
/// # Errors
/// Returns `Store` if an entry cannot be listed, because a dataset without one of its files would be another dataset;
/// `Malformed` if a file exists both plain and compressed; `TooLarge`.
pub(super) fn list_files(folder: &Path, ending: &str) -> Result<BTreeMap<String, PathBuf>, DatasetError> {
    list_files_up_to(folder, ending, DATASET_NAMES_MAX)
}

/// Returns the same as [`list_files`], with another maximum number of files.
pub(super) fn list_files_up_to(
    folder: &Path,
    ending: &str,
    max: usize,
) -> Result<BTreeMap<String, PathBuf>, DatasetError> {
    let malformed = |file: &str, reason: String| DatasetError::Malformed { file: file.to_owned(), reason };
    let mut named = BTreeMap::new();
    for entry in folder.read_dir().map_err(StoreError::io(folder))? {
        let entry = entry.map_err(StoreError::io(folder))?;
        let (name, path) = (entry.file_name(), entry.path());
        let name_text = name.to_string_lossy();
        let Some(stem) = stem(&name_text, ending) else { continue };
        // Links are followed.
        if !fs::metadata(&path).map_err(StoreError::io(&path))?.is_file() {
            continue;
        }
        if name.to_str().is_none() {
            return Err(malformed(&name_text, "its name is not valid UTF-8".to_owned()));
        }
        if named.insert(stem.to_owned(), path).is_some() {
            let plain = format!("{stem}.{ending}");
            return Err(malformed(&format!("{plain}.gz"), format!("{plain} is there too; keep one of them")));
        }
        if named.len() > max {
            let what = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Err(DatasetError::TooLarge { what, max: max as u64, unit: "files of one format" });
        }
    }
    Ok(named)
}

/// Returns `NAME` of a file `NAME.ending` or `NAME.ending.gz`.
fn stem<'a>(name: &'a str, ending: &str) -> Option<&'a str> {
    let plain = name.strip_suffix(".gz").unwrap_or(name);
    plain.strip_suffix(ending)?.strip_suffix('.').filter(|stem| !stem.is_empty())
}

/// An open file or archive entry: decompressed, with the number of bytes read so far.
pub(super) struct SourceReader<'a> {
    /// Its name, for messages.
    pub(super) name: String,
    reader: Box<dyn Read + 'a>,
    offset: u64,
}

impl<'a> SourceReader<'a> {
    /// Wraps a reader.
    pub(super) fn new(name: String, reader: impl Read + 'a) -> SourceReader<'a> {
        SourceReader { name, reader: Box::new(reader), offset: 0 }
    }

    /// Opens a file; one whose name ends in `.gz` is decompressed.
    pub(super) fn open(path: &Path) -> Result<SourceReader<'static>, DatasetError> {
        let file = BufReader::new(regular_file::open(path).map_err(StoreError::io(path))?);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let reader: Box<dyn Read> =
            if name.ends_with(".gz") { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) };
        Ok(SourceReader { name, reader, offset: 0 })
    }

    /// Returns the next `bytes` bytes. `total` is the required size of the file, for errors.
    pub(super) fn take_bytes(&mut self, bytes: u64, total: u64) -> Result<Vec<u8>, DatasetError> {
        let prefix_bytes = self.take_up_to(bytes)?;
        if prefix_bytes.len() as u64 == bytes {
            return Ok(prefix_bytes);
        }
        let (file, found) = (self.name.clone(), self.offset);
        Err(DatasetError::Truncated { file, found, expected: total })
    }

    /// Returns the next `bytes` bytes, or fewer if the file ends before.
    pub(super) fn take_up_to(&mut self, bytes: u64) -> Result<Vec<u8>, DatasetError> {
        // Grows with the data that exists, not with the size that a header states.
        let mut prefix_bytes = Vec::new();
        let read = Read::take(&mut *self, bytes).read_to_end(&mut prefix_bytes);
        read.map_err(|error| self.read_error(&error))?;
        Ok(prefix_bytes)
    }

    /// Appends the next `bytes` bytes to a column. `total` is the required size of the file, for errors. `change` is
    /// called with each piece, which is a multiple of 8 bytes except for the last, and the number of bytes before it.
    pub(super) fn copy_to_column(
        &mut self,
        bytes: u64,
        total: u64,
        column: &mut ColumnWriter<'_>,
        mut change: impl FnMut(&mut [u8], u64) -> Result<(), DatasetError>,
    ) -> Result<(), DatasetError> {
        let mut copied = 0;
        while copied < bytes {
            let mut piece = self.take_bytes((bytes - copied).min(INGEST_BUFFER_BYTES_MAX as u64), total)?;
            change(&mut piece, copied)?;
            column.push(&piece)?;
            copied += piece.len() as u64;
        }
        Ok(())
    }

    /// Skips to the file's end, or to the maximum size of a dataset. Returns the number of bytes skipped.
    pub(super) fn skip_to_end(&mut self) -> Result<u64, DatasetError> {
        let skipped = io::copy(&mut Read::take(&mut *self, DATASET_BYTES_MAX), &mut io::sink());
        skipped.map_err(|error| self.read_error(&error))
    }

    /// Checks that the file ends here. This also detects a damaged end of a compressed file.
    pub(super) fn expect_end(&mut self) -> Result<(), DatasetError> {
        let expected = self.offset;
        match self.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(DatasetError::TooLong { file: self.name.clone(), expected }),
            Err(error) => Err(self.read_error(&error)),
        }
    }

    /// Returns the error of a read, with the position.
    pub(super) fn read_error(&self, error: &io::Error) -> DatasetError {
        let reason = match error.kind() {
            ErrorKind::UnexpectedEof => "the compressed file ends early".to_owned(),
            _ => error.to_string(),
        };
        DatasetError::Unreadable { file: self.name.clone(), offset: self.offset, reason }
    }
}

impl Read for SourceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buffer)?;
        self.offset += n as u64;
        Ok(n)
    }
}
