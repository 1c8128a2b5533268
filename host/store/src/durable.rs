//! Files and directories that are on the disk when the call returns.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Makes a directory's entries durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes the directory and its missing parents, each of them durable.
pub(crate) fn create_directories(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        create_directories(parent)?;
    }
    match fs::create_dir(path) {
        Ok(()) => sync_directory(parent.unwrap_or(Path::new("."))),
        // Another process made it meanwhile; it syncs it too.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes a new file and syncs it. Its directory is for the caller to sync, once for all files.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Replaces a file's content in one durable step.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(path, |staged| write_new(staged, bytes))
}

/// As [`replace`], for what only the owner may read.
pub(crate) fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(path, |staged| {
        use std::os::unix::fs::OpenOptionsExt;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(staged)?;
        file.write_all(bytes)?;
        file.sync_all()
    })
}

fn replace_with(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let staged = parent.join(format!(".{name}.{}", unique()));
    let written = write(&staged).and_then(|()| fs::rename(&staged, path));
    if let Err(error) = written {
        // What could not be written or synced is of no use to anybody.
        let _ = fs::remove_file(&staged);
        return Err(error);
    }
    sync_directory(parent)
}

/// 16 hexadecimal digits that no other process or call comes up with.
pub(crate) fn unique() -> String {
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
