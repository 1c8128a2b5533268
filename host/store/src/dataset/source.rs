//! A file of the user's, plain or compressed, read with an eye on where we are.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::staging::ColumnWriter;
use crate::error::{DatasetError, StoreError};
use crate::limits::{DATASET_BYTES_MAX, DATASET_NAMES_MAX, INGEST_BUFFER_BYTES_MAX};
use crate::regular_file;

/// The file of this name, plain or compressed.
pub(super) fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let candidates = [folder.join(name), folder.join(format!("{name}.gz"))];
    candidates.into_iter().find(|path| path.is_file())
}

/// The folder's files `NAME.ending`, plain or compressed, by `NAME`, in order.
///
/// What cannot be listed is an error: a dataset without one of its files would be another dataset. Errors: `Store`;
/// `Malformed` for a file that is there plain and compressed; `TooLarge`.
pub(super) fn list_files(folder: &Path, ending: &str) -> Result<BTreeMap<String, PathBuf>, DatasetError> {
    list_files_up_to(folder, ending, DATASET_NAMES_MAX)
}

/// As [`list_files`], where so many may be there.
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
        let shown = name.to_string_lossy();
        let Some(stem) = stem(&shown, ending) else { continue };
        // Links are followed.
        if !fs::metadata(&path).map_err(StoreError::io(&path))?.is_file() {
            continue;
        }
        if name.to_str().is_none() {
            return Err(malformed(&shown, "its name is no UTF-8".to_owned()));
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

/// `NAME` of a file `NAME.ending` or `NAME.ending.gz`.
fn stem<'a>(name: &'a str, ending: &str) -> Option<&'a str> {
    let plain = name.strip_suffix(".gz").unwrap_or(name);
    plain.strip_suffix(ending)?.strip_suffix('.').filter(|stem| !stem.is_empty())
}

/// An open file, or one inside an archive: decompressed, and with the number of bytes read so far.
pub(super) struct SourceReader<'a> {
    /// Its name, for messages.
    pub(super) name: String,
    reader: Box<dyn Read + 'a>,
    offset: u64,
}

impl<'a> SourceReader<'a> {
    /// What a reader gives.
    pub(super) fn new(name: String, reader: impl Read + 'a) -> SourceReader<'a> {
        SourceReader { name, reader: Box::new(reader), offset: 0 }
    }

    /// Opens a file; one that is called `.gz` is decompressed.
    pub(super) fn open(path: &Path) -> Result<SourceReader<'static>, DatasetError> {
        let file = BufReader::new(regular_file::open(path).map_err(StoreError::io(path))?);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let reader: Box<dyn Read> =
            if name.ends_with(".gz") { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) };
        Ok(SourceReader { name, reader, offset: 0 })
    }

    /// The next `bytes` bytes, of `total` that the file must have.
    pub(super) fn take_bytes(&mut self, bytes: u64, total: u64) -> Result<Vec<u8>, DatasetError> {
        let taken = self.take_up_to(bytes)?;
        if taken.len() as u64 == bytes {
            return Ok(taken);
        }
        let (file, found) = (self.name.clone(), self.offset);
        Err(DatasetError::Truncated { file, found, expected: total })
    }

    /// The next `bytes` bytes, or fewer where the file ends before.
    pub(super) fn take_up_to(&mut self, bytes: u64) -> Result<Vec<u8>, DatasetError> {
        // Grows with what is there, not with what a header claims.
        let mut taken = Vec::new();
        let read = Read::take(&mut *self, bytes).read_to_end(&mut taken);
        read.map_err(|error| self.read_error(&error))?;
        Ok(taken)
    }

    /// Appends the next `bytes` bytes, of `total` that the file must have, to a column. `change` is given every piece, which
    /// is a multiple of 8 bytes but for the last, and the number of bytes before it.
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

    /// Goes to the file's end, or as far as a dataset may be long. The number of bytes on the way.
    pub(super) fn skip_to_end(&mut self) -> Result<u64, DatasetError> {
        let skipped = io::copy(&mut Read::take(&mut *self, DATASET_BYTES_MAX), &mut io::sink());
        skipped.map_err(|error| self.read_error(&error))
    }

    /// Makes sure that the file ends here. A damaged end of a compressed file shows here too.
    pub(super) fn expect_end(&mut self) -> Result<(), DatasetError> {
        let expected = self.offset;
        match self.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(DatasetError::TooLong { file: self.name.clone(), expected }),
            Err(error) => Err(self.read_error(&error)),
        }
    }

    /// The error of a read, with the place.
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
