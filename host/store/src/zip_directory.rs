//! Opens untrusted ZIP archives. The central directory at their end is read into memory whole, so its size is limited.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::rc::Rc;

use zip::ZipArchive;
use zip::result::ZipError;

use crate::limits::ZIP_DIRECTORY_BYTES_MAX;

/// Opens an archive whose central directory has at most [`ZIP_DIRECTORY_BYTES_MAX`] bytes.
///
/// # Errors
/// Returns the error of `zip` if the file is not an archive or its central directory is too large.
pub fn open(file: File) -> Result<ZipArchive<BufReader<LimitedZipFile>>, ZipError> {
    let left = Rc::new(Cell::new(Some(ZIP_DIRECTORY_BYTES_MAX)));
    let archive = ZipArchive::new(BufReader::new(LimitedZipFile { file, left: Rc::clone(&left) }))?;
    // The entries are read after this; their readers limit them.
    left.set(None);
    Ok(archive)
}

/// A file that fails after a number of bytes, if there is a limit.
pub struct LimitedZipFile {
    file: File,
    left: Rc<Cell<Option<u64>>>,
}

impl Read for LimitedZipFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        if let Some(left) = self.left.get() {
            let left = left.checked_sub(n as u64).ok_or_else(|| {
                let reason = format!("its list of files takes more than {ZIP_DIRECTORY_BYTES_MAX} bytes");
                io::Error::new(ErrorKind::FileTooLarge, reason)
            })?;
            self.left.set(Some(left));
        }
        Ok(n)
    }
}

impl Seek for LimitedZipFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}
