//! The operations on files and directories of which all durable operations consist.

use std::path::Path;

/// An operation that is about to run.
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

#[cfg(test)]
impl FileOperation<'_> {
    /// Returns the path of the file or directory; of two, the existing one.
    pub(crate) fn path(&self) -> &Path {
        match self {
            FileOperation::MakeDirectory(path)
            | FileOperation::CreateFile(path)
            | FileOperation::Write(path, _)
            | FileOperation::Sync(path)
            | FileOperation::SyncDirectory(path)
            | FileOperation::Rename(path, _)
            | FileOperation::Link(path, _)
            | FileOperation::RemoveFile(path)
            | FileOperation::RemoveDirectory(path)
            | FileOperation::List(path)
            | FileOperation::Read(path) => path,
        }
    }
}
