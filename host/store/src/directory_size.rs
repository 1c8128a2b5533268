//! Sizes of directories: the sum of the file sizes in them and below.
//!
//! Counting walks the directories and reads no content. Files that appear or vanish meanwhile are counted or not; they
//! cause no error. A directory that cannot be listed, such as `lost+found` of a disk behind a link, counts as 0.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::StoreError;

/// Returns the entries of a directory; empty if it is not a directory, no longer exists, or cannot be listed.
pub(crate) fn list_entries(directory: &Path) -> Result<Vec<fs::DirEntry>, StoreError> {
    let listed = fs::read_dir(directory).and_then(|entries| entries.collect());
    match listed {
        Err(error) if counts_as_empty(&error) => Ok(Vec::new()),
        listed => listed.map_err(StoreError::io(directory)),
    }
}

/// Returns [`tree_bytes`] of a path that can be a symbolic link, as parts of the state directory can be.
pub(crate) fn linked_tree_bytes(place: &Path) -> Result<u64, StoreError> {
    match fs::canonicalize(place) {
        Ok(place) => tree_bytes(&place),
        Err(error) if counts_as_empty(&error) => Ok(0),
        Err(error) => Err(StoreError::io(place)(error)),
    }
}

/// Returns the bytes of a file, or of all files in a directory and below. Links count as 0 and are not followed.
pub(crate) fn tree_bytes(path: &Path) -> Result<u64, StoreError> {
    let mut sum = match fs::symlink_metadata(path) {
        Ok(data) if data.is_file() => return Ok(data.len()),
        Ok(data) if data.is_dir() => 0u64,
        Ok(_) => return Ok(0),
        Err(error) if counts_as_empty(&error) => return Ok(0),
        Err(error) => return Err(StoreError::io(path)(error)),
    };
    let mut left = vec![path.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in list_entries(&directory)? {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => left.push(entry.path()),
                // A file that has vanished since the listing counts as 0.
                Ok(kind) if kind.is_file() => sum = sum.saturating_add(entry.metadata().map_or(0, |data| data.len())),
                Ok(_) | Err(_) => {}
            }
        }
    }
    Ok(sum)
}

/// Returns whether the error means that the size is 0. Files that this user cannot list cannot be deleted either.
pub(crate) fn counts_as_empty(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}
