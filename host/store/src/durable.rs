//! Durable file operations: a change is on the disk when the call returns.

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
mod file_operation;
#[cfg(test)]
mod tests;

/// Creates the directory and its missing parents, each durably.
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

/// Creates a directory below `root` as [`create_directories`] does. Existing parents below `root` are synced too,
/// because a process may have died between creating one and syncing it.
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

/// Creates a directory unless it exists.
fn create_one(path: &Path) -> io::Result<()> {
    match disk::make_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Permissions of the state directory: other users cannot list it or hold a lock in it.
pub(crate) const PRIVATE_DIRECTORY_MODE: u32 = 0o700;
/// Permissions of the files of the state directory.
pub(crate) const PRIVATE_FILE_MODE: u32 = 0o600;
/// Permissions, before the umask, of files that other users can read: those of models, which can be in any directory.
const SHARED_FILE_MODE: u32 = 0o666;

/// Writes a new file that only the owner can read, and syncs it. The caller syncs its directory, once for all files.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = disk::create_file(path, PRIVATE_FILE_MODE)?;
    write_and_sync(&file, path, &[bytes])
}

/// Writes a new file as [`write_new`] does, but readable by other users.
pub(crate) fn write_new_shared(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = disk::create_file(path, SHARED_FILE_MODE)?;
    write_and_sync(&file, path, &[bytes])
}

/// Writes pieces one after the other and syncs the file. After an error the file must not be used.
pub(crate) fn write_and_sync<T: AsRef<[u8]>>(file: &File, path: &Path, pieces: &[T]) -> io::Result<()> {
    pieces.iter().try_for_each(|piece| disk::write(file, path, piece.as_ref()))?;
    disk::sync(file, path)
}

/// Replaces a file's content in one durable step. Only the owner can read it.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with_mode(path, bytes, PRIVATE_FILE_MODE)
}

/// Replaces a file's content as [`replace`] does, but readable by other users.
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
        // A file that could not be written or synced is useless.
        let _ = disk::remove_file(&staged);
        return Err(error);
    }
    disk::sync_directory(parent)
}

/// Creates an empty file for the owner only, or removes other users' permissions from an existing one.
pub(crate) fn make_private_file(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().create(true).append(true).mode(PRIVATE_FILE_MODE).open(path)?;
    if file.metadata()?.permissions().mode() & 0o777 & !PRIVATE_FILE_MODE == 0 {
        return Ok(());
    }
    match file.set_permissions(Permissions::from_mode(PRIVATE_FILE_MODE)) {
        // The file is another user's, or its file system has no permissions. Opening it still succeeds if it is
        // writable.
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => Ok(()),
        set => set,
    }
}

/// Waits for the lock on updates of the file at `path`. The lock is on another file beside it, because the file itself
/// is replaced. It is released when the returned file is dropped, or the process ends.
pub(crate) fn lock_for_update(path: &Path) -> Result<File, StoreError> {
    let lock_path = path.with_extension("lock");
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(PRIVATE_FILE_MODE);
    let lock = options.open(&lock_path);
    let lock = lock.map_err(StoreError::io(&lock_path))?;
    lock.lock().map_err(StoreError::io(&lock_path))?;
    Ok(lock)
}

/// Removes a directory and its content. For other processes it vanishes in one durable step, because it is renamed
/// first. Leftovers of an interrupted removal are removed too. Does nothing if nothing exists.
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

/// Prefix of the names of directories that are being removed.
const REMOVAL_PREFIX: &str = ".removed-";

/// Returns the path to which a directory is renamed while it is removed.
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

/// Returns 16 hexadecimal digits that no other process or call returns.
pub(crate) fn unique_suffix() -> String {
    random_hex::<8>()
}

/// Returns the hexadecimal digits of random bytes from the operating system.
pub fn random_hex<const BYTES: usize>() -> String {
    random_bytes::<BYTES>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns random bytes from the operating system.
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

/// Returns the bytes that a user without privileges can still write where `path` lies.
pub(crate) fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
