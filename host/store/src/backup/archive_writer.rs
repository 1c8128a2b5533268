//! Writes the files of a state directory into an archive, with the index at its end.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use saggar_clock::UnixMillis;

use super::{BACKUP_FORMAT, BackupError, BackupFile, BackupIndex, BackupSummary, INDEX_ENTRY, LONG_PREFIX, malformed};
use crate::digest::{Digest, Sha256Hasher};
use crate::durable::{self, disk};
use crate::error::StoreError;

/// Bytes of a block of a tar archive.
const BLOCK: u64 = 512;
/// Bytes that are copied at a time.
const COPY_BYTES: usize = 256 << 10;
/// Files of a directory that are open together, so that a removal of the directory does not leave a part of it.
const FILES_OPEN_MAX: usize = 128;
/// Depth of directories below the state directory. Symbolic links are followed, and can form a circle.
const DEPTH_MAX: usize = 24;
/// Prefixes of the names of files and directories that a writer has not committed.
const UNCOMMITTED: [&str; 2] = [".tmp-", ".staged-"];

/// An archive that is being written.
pub(super) struct ArchiveWriter {
    root: PathBuf,
    target: PathBuf,
    out: BufWriter<File>,
    files: Vec<BackupFile>,
    paths: BTreeSet<String>,
}

impl ArchiveWriter {
    /// Creates the file `target`, which must not exist, for files below `root`.
    pub(super) fn create(root: &Path, target: &Path) -> Result<ArchiveWriter, BackupError> {
        let file = disk::create_file(target, durable::PRIVATE_FILE_MODE).map_err(StoreError::io(target))?;
        Ok(ArchiveWriter {
            root: root.to_owned(),
            target: target.to_owned(),
            out: BufWriter::with_capacity(COPY_BYTES, file),
            files: Vec::new(),
            paths: BTreeSet::new(),
        })
    }

    /// Adds the files of a directory and of those below it, as far as they are not in the archive. A file or directory
    /// that is removed meanwhile is left out.
    pub(super) fn add_directory(&mut self, directory: &Path) -> Result<(), BackupError> {
        self.add_tree(directory, 0)
    }

    fn add_tree(&mut self, directory: &Path, depth: usize) -> Result<(), BackupError> {
        if depth > DEPTH_MAX {
            let path = directory.display();
            return Err(malformed(format!(
                "{path}: more than {DEPTH_MAX} directories deep; does a link form a circle?"
            )));
        }
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        for path in list(directory)? {
            match fs::metadata(&path) {
                Ok(meta) if meta.is_dir() => directories.push(path),
                Ok(meta) if meta.is_file() => files.push(path),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::io(&path)(error).into()),
            }
        }
        for group in files.chunks(FILES_OPEN_MAX) {
            let opened = group.iter().map(|path| open_optional(path)).collect::<Result<Vec<_>, _>>()?;
            if opened.iter().any(Option::is_none) && !directory.is_dir() {
                return Ok(());
            }
            for (path, file) in group.iter().zip(opened) {
                if let Some(file) = file {
                    self.add_open_file(path, file)?;
                }
            }
        }
        directories.iter().try_for_each(|path| self.add_tree(path, depth + 1))
    }

    /// Adds a file if it exists.
    pub(super) fn add_optional_file(&mut self, path: &Path) -> Result<(), BackupError> {
        match open_optional(path)? {
            Some(file) => self.add_open_file(path, file),
            None => Ok(()),
        }
    }

    /// Adds a file of elsewhere under a path of the state directory.
    pub(super) fn add_file_as(&mut self, path: &Path, name: &str) -> Result<(), BackupError> {
        let file = disk::open(path).map_err(StoreError::io(path))?;
        self.add_entry(path, file, name.to_owned())
    }

    /// Adds an open file, unless it is in the archive.
    pub(super) fn add_open_file(&mut self, path: &Path, file: File) -> Result<(), BackupError> {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        let Some(name) = relative.to_str() else {
            return Err(malformed(format!("{}: its name is not text", path.display())));
        };
        self.add_entry(path, file, name.to_owned())
    }

    fn add_entry(&mut self, path: &Path, file: File, name: String) -> Result<(), BackupError> {
        if self.paths.contains(&name) {
            return Ok(());
        }
        let failed = |error| BackupError::from(StoreError::io(path)(error));
        // A log can grow meanwhile. What it has now is copied.
        let bytes = file.metadata().map_err(failed)?.len();
        let long = format!("{LONG_PREFIX}{}", self.files.len());
        let entry = header(&name, bytes).is_none().then_some(long);
        let head = header(entry.as_deref().unwrap_or(&name), bytes);
        let head = head.ok_or_else(|| malformed(format!("{}: it cannot be an entry", path.display())))?;
        self.write(head.as_bytes())?;
        let sha256 = self.copy(path, file, bytes)?;
        self.paths.insert(name.clone());
        self.files.push(BackupFile { path: name, bytes, sha256, entry });
        Ok(())
    }

    fn copy(&mut self, path: &Path, mut file: File, bytes: u64) -> Result<Digest, BackupError> {
        let (mut hasher, mut buffer, mut left) = (Sha256Hasher::new(), vec![0; COPY_BYTES], bytes);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let read = file.read(&mut buffer[..most]).map_err(StoreError::io(path))?;
            if read == 0 {
                return Err(malformed(format!("{}: it became shorter while it was copied", path.display())));
            }
            hasher.update(&buffer[..read]);
            self.write(&buffer[..read])?;
            left -= read as u64;
        }
        self.pad(bytes)?;
        Ok(hasher.finish())
    }

    fn pad(&mut self, bytes: u64) -> Result<(), BackupError> {
        let padding = bytes.next_multiple_of(BLOCK) - bytes;
        self.write(&vec![0; padding as usize])
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        Ok(self.out.write_all(bytes).map_err(StoreError::io(&self.target))?)
    }

    /// Writes the index and the end of the archive, and makes the file durable.
    pub(super) fn finish(mut self, created_ms: UnixMillis) -> Result<BackupSummary, BackupError> {
        let files = std::mem::take(&mut self.files);
        let bytes = files.iter().map(|file| file.bytes).sum();
        let summary = BackupSummary { files: files.len() as u64, bytes };
        let program = env!("CARGO_PKG_VERSION").to_owned();
        let index = BackupIndex { format: BACKUP_FORMAT, program, created_ms, files };
        let text = serde_json::to_vec(&index).expect("an index is plain data");
        let head = header(INDEX_ENTRY, text.len() as u64).ok_or_else(|| malformed("the index is too large"))?;
        self.write(head.as_bytes())?;
        self.write(&text)?;
        self.pad(text.len() as u64)?;
        self.write(&[0; 2 * BLOCK as usize])?;
        let failed = StoreError::io(&self.target);
        let file = self.out.into_inner().map_err(|error| StoreError::io(&self.target)(error.into_error()))?;
        disk::sync(&file, &self.target).map_err(failed)?;
        Ok(summary)
    }
}

/// Returns the header of an entry, or `None` if the name does not fit.
fn header(name: &str, bytes: u64) -> Option<tar::Header> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_path(name).ok()?;
    // The name is split into two fields, and must be the same when it is joined.
    if header.path_bytes() != name.as_bytes() {
        return None;
    }
    header.set_size(bytes);
    header.set_mode(durable::PRIVATE_FILE_MODE);
    header.set_mtime(0);
    header.set_cksum();
    Some(header)
}

/// Returns the committed entries of a directory, sorted; none if it does not exist.
pub(super) fn list(directory: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io(directory)(error).into()),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(StoreError::io(directory))?;
        let name = entry.file_name();
        let is_uncommitted = |prefix: &&str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
        if !UNCOMMITTED.iter().any(is_uncommitted) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// Opens a file, or returns `None` if it does not exist.
pub(super) fn open_optional(path: &Path) -> Result<Option<File>, BackupError> {
    match crate::regular_file::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io(path)(error).into()),
    }
}
