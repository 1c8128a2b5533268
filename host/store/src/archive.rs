//! Unpacks untrusted archives into a folder.
//!
//! Nothing is written outside the folder, whatever the paths in the archive say. Links and devices are refused. Files
//! and bytes are counted while they are written; the sizes that the archive states are not trusted.

use std::cell::Cell;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::dataset::upload::is_relative_file_path;
use crate::error::{DatasetError, StoreError};
use crate::limits::UPLOAD_FILES_MAX;
use crate::{regular_file, zip_directory};
use flate2::bufread::MultiGzDecoder;

/// Bytes of the headers before one entry of a tar archive: long names and attributes, which are in memory together.
const TAR_HEADERS_BYTES_MAX: u64 = 256 << 10;

#[cfg(test)]
mod tests;

/// An archive format, recognized by its file extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveFormat {
    /// `.tar`
    Tar,
    /// `.tar.gz`, `.tgz`
    TarGz,
    /// `.zip`
    Zip,
    /// `.gz`: one file, compressed.
    Gz,
}

impl ArchiveFormat {
    /// Returns the archive format of a file with this name, or `None` if its extension is not that of an archive.
    pub fn from_file_name(name: &str) -> Option<ArchiveFormat> {
        let name = name.to_ascii_lowercase();
        let endings = [
            (".tar.gz", ArchiveFormat::TarGz),
            (".tgz", ArchiveFormat::TarGz),
            (".tar", ArchiveFormat::Tar),
            (".zip", ArchiveFormat::Zip),
            (".gz", ArchiveFormat::Gz),
        ];
        endings.into_iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, archive)| archive)
    }

    /// Unpacks the archive at `path`, whose file name is `name`, into the folder `into`, and returns the number of
    /// bytes written. Existing files are never overwritten. As in a push, names that begin with a dot are skipped.
    ///
    /// # Errors
    /// Returns `BadPath` if a path leaves the folder; `Malformed`, naming the entry; `TooLarge` if the content exceeds
    /// `bytes_max` or [`UPLOAD_FILES_MAX`] files; `Store`.
    pub fn unpack(self, path: &Path, name: &str, into: &Path, bytes_max: u64) -> Result<u64, DatasetError> {
        let file = BufReader::new(regular_file::open(path).map_err(io_error(path))?);
        let mut folder = ArchiveExtractor::new(name, into, bytes_max);
        match self {
            ArchiveFormat::Tar => folder.extract_tar(file)?,
            ArchiveFormat::TarGz => folder.extract_tar(MultiGzDecoder::new(file))?,
            ArchiveFormat::Zip => folder.extract_zip(file.into_inner())?,
            ArchiveFormat::Gz => {
                let plain = name.get(..name.len() - ".gz".len()).unwrap_or_default();
                folder.extract_entry(plain, &mut MultiGzDecoder::new(file))?;
            }
        }
        Ok(folder.bytes)
    }
}

/// Unpacks a tar archive from a stream. Otherwise the same as [`ArchiveFormat::unpack`].
///
/// # Errors
/// The same as [`ArchiveFormat::unpack`].
pub fn unpack_tar(reader: impl Read, name: &str, into: &Path, bytes_max: u64) -> Result<u64, DatasetError> {
    let mut folder = ArchiveExtractor::new(name, into, bytes_max);
    folder.extract_tar(reader)?;
    Ok(folder.bytes)
}

/// Writes the entries of an archive into a folder, within the limits.
struct ArchiveExtractor<'a> {
    archive: &'a str,
    into: &'a Path,
    bytes: u64,
    bytes_max: u64,
    paths: HashSet<String>,
}

impl<'a> ArchiveExtractor<'a> {
    fn new(archive: &'a str, into: &'a Path, bytes_max: u64) -> ArchiveExtractor<'a> {
        ArchiveExtractor { archive, into, bytes: 0, bytes_max, paths: HashSet::new() }
    }

    fn malformed(&self, entry: &str, reason: impl ToString) -> DatasetError {
        let entry: String = entry.chars().take(200).collect();
        let file = if entry.is_empty() { self.archive.to_owned() } else { format!("{}/{entry}", self.archive) };
        DatasetError::Malformed { file, reason: reason.to_string() }
    }

    fn extract_tar(&mut self, reader: impl Read) -> Result<(), DatasetError> {
        let left = Rc::new(Cell::new(None));
        let mut archive = tar::Archive::new(LimitedTarReader { reader, left: Rc::clone(&left) });
        let mut entries = archive.entries().map_err(|error| self.malformed("", error))?;
        loop {
            // Long names and attributes are separate entries before the file's own entry, and tar reads all of them
            // together.
            left.set(Some(TAR_HEADERS_BYTES_MAX));
            let Some(entry) = entries.next() else { return Ok(()) };
            let mut entry = entry.map_err(|error| self.malformed("", describe_read_error(&error)))?;
            left.set(None);
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let kind = entry.header().entry_type();
            if kind.is_file() || kind.is_contiguous() {
                self.extract_entry(&path, &mut entry)?;
            } else if !kind.is_dir() && !kind.is_pax_global_extensions() {
                return Err(self.malformed(&path, "a link or a device; only plain files are unpacked"));
            }
            // Skip the rest of the entry: it must not count as header bytes of the next one.
            io::copy(&mut entry, &mut io::sink())
                .map_err(|error| self.malformed(&path, describe_read_error(&error)))?;
        }
    }

    fn extract_zip(&mut self, file: File) -> Result<(), DatasetError> {
        let mut zip =
            zip_directory::open(file).map_err(|error| self.malformed("", format!("not a ZIP archive: {error}")))?;
        for at in 0..zip.len() {
            let mut entry = zip.by_index(at).map_err(|error| self.malformed("", error))?;
            let path = entry.name().map_err(|error| self.malformed("", error))?.into_owned();
            if entry.is_symlink() {
                return Err(self.malformed(&path, "a link or a device; only plain files are unpacked"));
            }
            if !entry.is_dir() {
                self.extract_entry(&path, &mut entry)?;
            }
        }
        Ok(())
    }

    /// Writes an entry, unless a push would skip it.
    fn extract_entry(&mut self, path: &str, reader: &mut impl Read) -> Result<(), DatasetError> {
        // Archives of a folder often name its files ./NAME.
        let plain = path.trim_start_matches("./");
        let hidden = |part: &str| part.starts_with('.') && part != "." && part != "..";
        if plain.split('/').any(hidden) {
            return Ok(());
        }
        if !is_relative_file_path(plain) {
            return Err(DatasetError::BadPath { path: format!("{}/{path}", self.archive) });
        }
        if !self.paths.insert(plain.to_owned()) {
            return Err(self.malformed(path, "the archive contains it twice"));
        }
        if self.paths.len() > UPLOAD_FILES_MAX {
            return Err(self.too_large(UPLOAD_FILES_MAX as u64, "files"));
        }
        let target = self.into.join(plain);
        let parent = target.parent().unwrap_or(self.into);
        fs::create_dir_all(parent).map_err(io_error(parent))?;
        let mut file = File::create_new(&target).map_err(io_error(&target))?;
        let mut piece = vec![0; 1 << 18];
        loop {
            let n = match reader.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.malformed(path, describe_read_error(&error))),
            };
            self.bytes += n as u64;
            if self.bytes > self.bytes_max {
                return Err(self.too_large(self.bytes_max, "bytes unpacked"));
            }
            file.write_all(&piece[..n]).map_err(io_error(&target))?;
        }
    }

    fn too_large(&self, max: u64, unit: &'static str) -> DatasetError {
        DatasetError::TooLarge { what: self.archive.to_owned(), max, unit }
    }
}

/// A reader of a tar archive that fails after `left` more bytes. `None` means no limit.
struct LimitedTarReader<R> {
    reader: R,
    left: Rc<Cell<Option<u64>>>,
}

impl<R: Read> Read for LimitedTarReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buffer)?;
        if let Some(left) = self.left.get() {
            let left = left.checked_sub(n as u64).ok_or_else(|| {
                let reason = format!("names and attributes of an entry take more than {TAR_HEADERS_BYTES_MAX} bytes");
                io::Error::new(io::ErrorKind::FileTooLarge, reason)
            })?;
            self.left.set(Some(left));
        }
        Ok(n)
    }
}

/// Unpacks a downloaded file into the empty folder `into`, and returns the folder to read a dataset from. A file that is no
/// archive, by its name, is linked or copied into it.
///
/// # Errors
/// The same as [`ArchiveFormat::unpack`].
pub fn unpack_download(file: &Path, name: &str, into: &Path, bytes_max: u64) -> Result<PathBuf, DatasetError> {
    match ArchiveFormat::from_file_name(name) {
        Some(archive) => {
            archive.unpack(file, name, into, bytes_max)?;
        }
        None => {
            let target = into.join(name);
            let linked = fs::hard_link(file, &target).or_else(|_| fs::copy(file, &target).map(drop));
            linked.map_err(io_error(&target))?;
        }
    }
    Ok(innermost_folder(into))
}

/// Returns the folder with the content. A folder that contains only one folder is skipped, unless that folder is a
/// class of images.
fn innermost_folder(folder: &Path) -> PathBuf {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        folder.read_dir().into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let is_image = |path: &PathBuf| {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        ending.is_some_and(|ending| ["png", "jpg", "jpeg"].contains(&&*ending))
    };
    match entries(folder).as_slice() {
        [only] if only.is_dir() && !entries(only).iter().any(is_image) => innermost_folder(only),
        _ => folder.to_owned(),
    }
}

/// Returns a function that adds the path to an I/O error.
fn io_error(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io { path: path.to_owned(), source }
}

/// Returns the text for an error that reading an archive reports.
fn describe_read_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the archive ends early".to_owned(),
        _ => error.to_string(),
    }
}
