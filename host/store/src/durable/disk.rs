//! The file operations that everything durable is made of, one function each.
//!
//! All changes of this crate to the file system go through here, but for SQLite's. So there is one seam, at which tests
//! refuse an operation, cut it short, or write all of them down to rebuild what a power loss could have left: see
//! `faults` and `crash`, which are there in tests only. In a build each function is the system call and nothing more.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::regular_file;

/// An operation about to be done.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "tests read what an operation is of"))]
pub(crate) enum FileOperation<'a> {
    MakeDirectory(&'a Path),
    CreateFile(&'a Path),
    Write(&'a Path, &'a [u8]),
    Sync(&'a Path),
    SyncDirectory(&'a Path),
    Rename(&'a Path, &'a Path),
    Link(&'a Path, &'a Path),
    RemoveFile(&'a Path),
    RemoveDirectory(&'a Path),
    List(&'a Path),
    Read(&'a Path),
}

/// Does an operation, unless a test has it fail.
fn perform<T>(step: &FileOperation<'_>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(test)]
    return super::fault_injection::perform(step, act);
    #[cfg(not(test))]
    {
        let _ = step;
        act()
    }
}

/// Makes a directory, which must not be there.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    perform(&FileOperation::MakeDirectory(path), || fs::create_dir(path))
}

/// Makes a file, which must not be there, with these permissions less the process's mask.
pub(crate) fn create_file(path: &Path, mode: u32) -> io::Result<File> {
    perform(&FileOperation::CreateFile(path), || OpenOptions::new().write(true).create_new(true).mode(mode).open(path))
}

/// Opens a file to write at its end.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    perform(&FileOperation::Read(path), || OpenOptions::new().append(true).open(path))
}

/// Writes all of `bytes` where the file stands. `path` is the file's.
pub(crate) fn write(mut file: &File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let step = FileOperation::Write(path, bytes);
    #[cfg(test)]
    if let Some((cut, error)) = super::fault_injection::cut_write(&step) {
        file.write_all(&bytes[..cut])?;
        return Err(error);
    }
    perform(&step, || file.write_all(bytes))
}

/// Has the disk hold all that was written to the file. Where this fails, what the disk holds is not known, and a second
/// try would say nothing: the file is to be given up.
pub(crate) fn sync(file: &File, path: &Path) -> io::Result<()> {
    perform(&FileOperation::Sync(path), || file.sync_all())
}

/// Has the disk hold a directory's entries.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    perform(&FileOperation::SyncDirectory(path), || File::open(path)?.sync_all())
}

/// Gives a file or directory another name in the same directory, in the place of what has it.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    perform(&FileOperation::Rename(from, to), || fs::rename(from, to))
}

/// Gives a file a second name, which must be free.
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

/// Removes a directory and all that is in it. Links are removed, not followed.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    for (entry, kind) in list(path)? {
        if kind.is_dir() { remove_tree(&entry)? } else { remove_file(&entry)? }
    }
    remove_directory(path)
}

/// The paths in a directory, with what each is, in no order.
pub(crate) fn list(path: &Path) -> io::Result<Vec<(PathBuf, fs::FileType)>> {
    let entry = |entry: io::Result<fs::DirEntry>| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)));
    perform(&FileOperation::List(path), || fs::read_dir(path)?.map(entry).collect())
}

/// Opens a regular file to read it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    perform(&FileOperation::Read(path), || regular_file::open(path))
}

/// A file's whole content.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    let mut bytes = Vec::with_capacity(usize::try_from(file.metadata()?.len()).unwrap_or(0));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
