//! Files and directories that are on the disk when the call returns.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::StoreError;

#[cfg(test)]
pub(crate) mod crash_model;
#[cfg(test)]
pub(crate) mod crash_test;
pub(crate) mod disk;
#[cfg(test)]
pub(crate) mod fault_injection;
#[cfg(test)]
mod tests;

/// Makes the directory and its missing parents, each of them durable.
pub(crate) fn create_directories(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        create_directories(parent)?;
    }
    create_one(path)?;
    disk::sync_directory(parent.unwrap_or(Path::new(".")))
}

/// As [`create_directories`], for a directory below `root`. Those on the way that are there already are synced too: a
/// process may have died after it made one and before it was on the disk.
pub(crate) fn create_directories_below(root: &Path, path: &Path) -> io::Result<()> {
    create_directories(root)?;
    let mut directory = root.to_owned();
    for name in path.strip_prefix(root).unwrap_or(Path::new("")) {
        let parent = directory.clone();
        directory.push(name);
        create_one(&directory)?;
        disk::sync_directory(&parent)?;
    }
    Ok(())
}

/// Makes a directory, or finds that it is there.
fn create_one(path: &Path) -> io::Result<()> {
    match disk::make_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Permissions of the state directory: nobody else looks into it, or holds a lock in it.
pub(crate) const PRIVATE_DIRECTORY_MODE: u32 = 0o700;
/// Permissions of the files of the state directory.
pub(crate) const PRIVATE_FILE_MODE: u32 = 0o600;
/// Permissions of files that others may read as the process's mask says: those of models, which may lie anywhere.
const SHARED_FILE_MODE: u32 = 0o666;

/// Writes a new file for the owner alone and syncs it. Its directory is for the caller to sync, once for all files.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = disk::create_file(path, PRIVATE_FILE_MODE)?;
    write_and_sync(&file, path, &[bytes])
}

/// As [`write_new`], for what others may read.
pub(crate) fn write_new_shared(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = disk::create_file(path, SHARED_FILE_MODE)?;
    write_and_sync(&file, path, &[bytes])
}

/// Writes pieces, one after the other, and syncs the file, which is no good where this fails.
pub(crate) fn write_and_sync<T: AsRef<[u8]>>(file: &File, path: &Path, pieces: &[T]) -> io::Result<()> {
    pieces.iter().try_for_each(|piece| disk::write(file, path, piece.as_ref()))?;
    disk::sync(file, path)
}

/// Replaces a file's content in one durable step. Only the owner may read it.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with_mode(path, bytes, PRIVATE_FILE_MODE)
}

/// As [`replace`], for what others may read.
pub(crate) fn replace_shared(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with_mode(path, bytes, SHARED_FILE_MODE)
}

fn replace_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let staged = parent.join(format!(".{name}.{}", unique_suffix()));
    let file = disk::create_file(&staged, mode)?;
    let written = write_and_sync(&file, &staged, &[bytes]).and_then(|()| disk::rename(&staged, path));
    if let Err(error) = written {
        // What could not be written or synced is of no use to anybody.
        let _ = disk::remove_file(&staged);
        return Err(error);
    }
    disk::sync_directory(parent)
}

/// Makes a file that is empty at first, or takes the permissions of others from one that is there.
pub(crate) fn make_private_file(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().create(true).append(true).mode(PRIVATE_FILE_MODE).open(path)?;
    if file.metadata()?.permissions().mode() & 0o777 & !PRIVATE_FILE_MODE == 0 {
        return Ok(());
    }
    match file.set_permissions(Permissions::from_mode(PRIVATE_FILE_MODE)) {
        // Another user's, or on a file system without permissions: whoever may write to it goes on.
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => Ok(()),
        set => set,
    }
}

/// Waits for the lock that whoever changes the file at `path` holds: that of a file beside it, since the file itself is
/// replaced. It is given up with what is returned, or with the process.
pub(crate) fn lock_for_update(path: &Path) -> Result<File, StoreError> {
    let lock_path = path.with_extension("lock");
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(PRIVATE_FILE_MODE);
    let lock = options.open(&lock_path);
    let lock = lock.map_err(StoreError::io(&lock_path))?;
    lock.lock().map_err(StoreError::io(&lock_path))?;
    Ok(lock)
}

/// Removes a directory and all that is in it, in one durable step as others see it: it loses its name first. What an
/// earlier removal that was cut off left is removed too; where there is nothing, nothing is done.
pub(crate) fn remove_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return Ok(());
    }
    let hidden = removal_path(path);
    remove_tree_if_there(&hidden)?;
    match disk::rename(path, &hidden) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        renamed => renamed?,
    }
    disk::sync_directory(parent)?;
    remove_tree_if_there(&hidden)?;
    disk::sync_directory(parent)
}

/// What the names of directories begin with that are being removed.
const REMOVAL_PREFIX: &str = ".removed-";

/// Where a directory lies while it is removed.
pub(crate) fn removal_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{REMOVAL_PREFIX}{name}"))
}

fn remove_tree_if_there(path: &Path) -> io::Result<()> {
    match disk::remove_tree(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// 16 hexadecimal digits that no other process or call comes up with.
pub(crate) fn unique_suffix() -> String {
    random_bytes::<8>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Random bytes of the operating system.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the operating system gives no random numbers: {error}"),
        }
    }
    bytes
}

/// Bytes that a user without privileges can still write where `path` lies.
pub(crate) fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
