//! Primitive file operations, one function each, on which all durable operations are built.
//!
//! All changes of this crate to the file system go through these functions, except SQLite's. This gives tests one place
//! at which to refuse an operation, to interrupt it, or to log all operations and reconstruct the states that a power
//! loss could leave: see `fault_injection` and `crash_model`, which exist only in tests. In a normal build each
//! function is just the system call.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::file_operation::FileOperation;
use crate::regular_file;

/// Runs an operation, unless a test makes it fail.
fn perform<T>(step: &FileOperation<'_>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(test)]
    return super::fault_injection::perform(step, act);
    #[cfg(not(test))]
    {
        let _ = step;
        act()
    }
}

/// Creates a directory, which must not exist.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    perform(&FileOperation::MakeDirectory(path), || fs::create_dir(path))
}

/// Creates a file, which must not exist, with these permissions less the umask.
pub(crate) fn create_file(path: &Path, mode: u32) -> io::Result<File> {
    perform(&FileOperation::CreateFile(path), || OpenOptions::new().write(true).create_new(true).mode(mode).open(path))
}

/// Opens a file for appending.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    perform(&FileOperation::Read(path), || OpenOptions::new().append(true).open(path))
}

/// Writes all of `bytes` at the file's current position. `path` is the file's.
pub(crate) fn write(mut file: &File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let step = FileOperation::Write(path, bytes);
    #[cfg(test)]
    if let Some((cut, error)) = super::fault_injection::cut_write(&step) {
        file.write_all(&bytes[..cut])?;
        return Err(error);
    }
    perform(&step, || file.write_all(bytes))
}

/// Syncs the file. After an error it is unknown what the disk contains, and a second sync would prove nothing, so the
/// file must be discarded.
pub(crate) fn sync(file: &File, path: &Path) -> io::Result<()> {
    perform(&FileOperation::Sync(path), || file.sync_all())
}

/// Syncs a directory's entries.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    perform(&FileOperation::SyncDirectory(path), || File::open(path)?.sync_all())
}

/// Renames a file or directory within its directory, replacing an existing target.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    perform(&FileOperation::Rename(from, to), || fs::rename(from, to))
}

/// Creates a hard link; the new name must be free.
pub(crate) fn link(from: &Path, to: &Path) -> io::Result<()> {
    perform(&FileOperation::Link(from, to), || fs::hard_link(from, to))
}

/// Removes a file.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    perform(&FileOperation::RemoveFile(path), || fs::remove_file(path))
}

/// Removes an empty directory.
pub(crate) fn remove_directory(path: &Path) -> io::Result<()> {
    perform(&FileOperation::RemoveDirectory(path), || fs::remove_dir(path))
}

/// Removes a directory and everything in it. Links are removed, not followed.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    for (entry, kind) in list(path)? {
        if kind.is_dir() { remove_tree(&entry)? } else { remove_file(&entry)? }
    }
    remove_directory(path)
}

/// Returns the paths in a directory with their file types, in no particular order.
pub(crate) fn list(path: &Path) -> io::Result<Vec<(PathBuf, fs::FileType)>> {
    let entry = |entry: io::Result<fs::DirEntry>| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)));
    perform(&FileOperation::List(path), || fs::read_dir(path)?.map(entry).collect())
}

/// Opens a regular file to read it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    perform(&FileOperation::Read(path), || regular_file::open(path))
}

/// Returns a file's whole content.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    let mut bytes = Vec::with_capacity(usize::try_from(file.metadata()?.len()).unwrap_or(0));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
