//! Connections to the Unix socket of a notebook. Its folder can be written by the notebook's own code, so the socket's
//! path is not followed if it is a link: a request must not reach another socket of this machine.

use std::io;
use std::path::Path;

use tokio::net::UnixStream;

/// Connects to the socket, whose path can be longer than the address of a socket.
///
/// # Errors
/// The operating system's error; `InvalidInput` if the path is not a socket.
#[cfg(target_os = "linux")]
pub async fn connect(socket: &Path) -> io::Result<UnixStream> {
    use std::os::fd::AsRawFd;

    use rustix::fs::{FileType, Mode, OFlags, fstat, open};

    let file = open(socket, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::Socket {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a socket"));
    }
    UnixStream::connect(format!("/proc/self/fd/{}", file.as_raw_fd())).await
}

/// Notebooks run only on Linux, where their sandbox exists.
///
/// # Errors
/// `Unsupported`.
#[cfg(not(target_os = "linux"))]
pub async fn connect(_: &Path) -> io::Result<UnixStream> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_link_to_another_socket_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link, file) = (dir.path().join("a.sock"), dir.path().join("b.sock"), dir.path().join("c.sock"));
        let _listener = UnixListener::bind(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        std::fs::write(&file, "").unwrap();
        connect(&real).await.unwrap();
        for path in [&link, &file] {
            assert_eq!(connect(path).await.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
    }

    #[tokio::test]
    async fn a_socket_in_a_deep_directory_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let near = dir.path().join("s.sock");
        let _listener = UnixListener::bind(&near).unwrap();
        std::fs::rename(&near, deep.join("s.sock")).unwrap();
        connect(&deep.join("s.sock")).await.unwrap();
    }
}
