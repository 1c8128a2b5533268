//! Opens regular files in directories that users, jobs and other programs can write to.
//!
//! Opening a named pipe for reading blocks until a writer opens it, possibly for ever, and opening a device can have
//! any effect. These functions open only regular files and never block. Symbolic links are followed.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading, without blocking.
///
/// # Errors
/// Returns `IsADirectory` for a directory, and `InvalidInput` for a named pipe, a socket or a device, each with a
/// message that names the file type; any error of the operating system. The caller adds the path.
pub fn open(path: &Path) -> io::Result<File> {
    // Check before opening, because opening a device can have effects, and again afterwards, because the path may have
    // been replaced.
    check(fs::metadata(path)?.file_type())?;
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("flags of open(2) are an int");
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    check(file.metadata()?.file_type())?;
    Ok(file)
}

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// The same as [`open`]; `FileTooLarge`, with the limit, if it is longer.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!("more than {bytes_max} bytes, which is the limit"),
        ));
    }
    Ok(bytes)
}

/// Reads a regular file of at most `bytes_max` bytes of UTF-8.
///
/// # Errors
/// The same as [`read`]; `InvalidData` if the bytes are not UTF-8.
pub fn read_to_string(path: &Path, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read(path, bytes_max)?)
        .map_err(|error| io::Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

fn check(file_type: FileType) -> io::Result<()> {
    if file_type.is_file() {
        return Ok(());
    }
    let (kind, what) = match file_type {
        it if it.is_dir() => (ErrorKind::IsADirectory, "a directory"),
        it if it.is_fifo() => (ErrorKind::InvalidInput, "a named pipe"),
        it if it.is_socket() => (ErrorKind::InvalidInput, "a socket"),
        it if it.is_char_device() || it.is_block_device() => (ErrorKind::InvalidInput, "a device"),
        _ => (ErrorKind::InvalidInput, "a special file"),
    };
    Err(io::Error::new(kind, format!("{what}, and only regular files are read; remove it or replace it with a file")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn regular_files_and_links_to_them_are_read_up_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&path, "text").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"text");
        assert_eq!(read_to_string(&link, 4).unwrap(), "text");
        let error = read(&link, 3).unwrap_err();
        assert_eq!((error.kind(), error.to_string().contains('3')), (ErrorKind::FileTooLarge, true));
        fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_to_string(&path, 4).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(read(&directory.path().join("missing"), 3).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn pipes_sockets_devices_and_directories_are_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let (pipe, socket) = (directory.path().join("pipe"), directory.path().join("socket"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        let cases = [
            (pipe.as_path(), ErrorKind::InvalidInput, "a named pipe"),
            (link.as_path(), ErrorKind::InvalidInput, "a named pipe"),
            (socket.as_path(), ErrorKind::InvalidInput, "a socket"),
            (Path::new("/dev/zero"), ErrorKind::InvalidInput, "a device"),
            (directory.path(), ErrorKind::IsADirectory, "a directory"),
        ];
        for (path, kind, what) in cases {
            let error = open(path).unwrap_err();
            assert_eq!(error.kind(), kind, "{}", path.display());
            assert!(error.to_string().starts_with(what), "{error}");
        }
    }
}
