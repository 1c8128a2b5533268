//! Outputs of jobs: files that a plugin wrote by name, stored under the job's directory.
//!
//! Plugins and clients choose the paths, so [`is_output_path`] checks each before it reaches the file system.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use saggar_tensor::limits::NAME_BYTES_MAX;

use crate::durable;
use crate::error::StoreError;
use crate::limits::OUTPUTS_LISTED_MAX;
use crate::regular_file;
use crate::state_dir::StateDir;

/// The folder of outputs in a job's directory.
pub(crate) const OUTPUT_FOLDER: &str = "output";

/// Returns the folder of a job's outputs; `job_dir` is the job's directory.
pub(crate) fn output_directory(job_dir: &Path) -> PathBuf {
    job_dir.join(OUTPUT_FOLDER)
}

/// A file that a job wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Its path: names joined by `/`.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Returns whether a path stays in its directory, on every system: names of letters, digits, `.`, `_` and `-`, not
/// beginning with `.`, joined by `/`, of at most [`NAME_BYTES_MAX`] bytes in total.
pub fn is_output_path(path: &str) -> bool {
    let is_name = |name: &str| {
        let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        letters && !name.is_empty() && !name.starts_with('.')
    };
    path.len() <= NAME_BYTES_MAX && path.split('/').all(is_name)
}

impl StateDir {
    /// Stores a job's output durably, replacing any file at the same path. `path` must satisfy [`is_output_path`].
    ///
    /// # Errors
    /// Returns `Io` if the file cannot be written.
    pub fn write_output(&self, job: &str, path: &str, data: &[u8]) -> Result<(), StoreError> {
        let path = self.job(job).join(OUTPUT_FOLDER).join(path);
        let directory = path.parent().unwrap_or(&path);
        durable::create_directories_below(self.root(), directory).map_err(StoreError::io(directory))?;
        durable::replace(&path, data).map_err(StoreError::io(&path))
    }
}

/// Returns a job's outputs, sorted by path, at most [`OUTPUTS_LISTED_MAX`]. Empty if the job wrote nothing. `job_dir`
/// is the job's directory.
///
/// # Errors
/// Returns any error of the file system.
pub fn list(job_dir: &Path) -> io::Result<Vec<OutputFile>> {
    let mut found = Vec::new();
    let mut left = vec![(output_directory(job_dir), String::new())];
    while let Some((directory, prefix)) = left.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            // A file that is being written has a name that is not a valid output path.
            if !is_output_path(&path) || found.len() >= OUTPUTS_LISTED_MAX {
                continue;
            }
            // Links are not followed: no plugin can create one.
            let kind = entry.file_type()?;
            if kind.is_dir() {
                left.push((entry.path(), format!("{path}/")));
            } else if kind.is_file() {
                found.push(OutputFile { path, bytes: entry.metadata()?.len() });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Opens a job's output and returns it with its size in bytes, or `None` if no output has this path. The content of the
/// opened file does not change, even if the job replaces the output.
///
/// # Errors
/// Returns any other error of the file system.
pub fn open(job_dir: &Path, path: &str) -> io::Result<Option<(File, u64)>> {
    if !is_output_path(path) {
        return Ok(None);
    }
    let path = output_directory(job_dir).join(path);
    // A component of the path that is a file, not a folder, also means that the output does not exist.
    let absent = |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    let look = fs::symlink_metadata(&path);
    match look.and_then(|data| if data.is_file() { regular_file::open(&path).map(Some) } else { Ok(None) }) {
        Ok(None) => Ok(None),
        // Take the size from the opened file, because the path may have been replaced since.
        Ok(Some(file)) => file.metadata().map(|data| Some((file, data.len()))),
        Err(error) if absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn an_output_replaces_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let home = StateDir::open(directory.path()).unwrap();
        home.write_output("j", "a/b.txt", b"one").unwrap();
        home.write_output("j", "a/b.txt", b"two").unwrap();
        assert_eq!(fs::read(home.job("j").join("output/a/b.txt")).unwrap(), b"two");
        assert_eq!(fs::read_dir(home.job("j").join("output/a")).unwrap().count(), 1);
    }

    #[test]
    fn outputs_are_listed_and_read() {
        let directory = tempfile::tempdir().unwrap();
        let home = StateDir::open(directory.path()).unwrap();
        let job = home.job("j");
        assert_eq!(list(&job).unwrap(), []);
        home.write_output("j", "b.txt", b"one").unwrap();
        home.write_output("j", "a/b.png", b"four").unwrap();
        fs::write(job.join("output/.b.txt.0123"), b"half").unwrap();
        fs::write(job.join("secret"), b"x").unwrap();
        std::os::unix::fs::symlink(job.join("secret"), job.join("output/link")).unwrap();
        let file = |path: &str, bytes| OutputFile { path: path.to_owned(), bytes };
        assert_eq!(list(&job).unwrap(), [file("a/b.png", 4), file("b.txt", 3)]);

        let (mut opened, bytes) = open(&job, "a/b.png").unwrap().unwrap();
        home.write_output("j", "a/b.png", b"another").unwrap();
        let mut text = String::new();
        opened.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), bytes), ("four", 4));
        for path in ["", "a", "c", "../secret", "a/../b.txt", "/etc/passwd", "b.txt/c", "link", ".b.txt.0123"] {
            assert!(open(&job, path).unwrap().is_none(), "{path}");
        }
    }

    #[test]
    fn paths_stay_in_their_directory() {
        for path in ["target-010.png", "a/b_c/d.txt", "x"] {
            assert!(is_output_path(path), "{path}");
        }
        for path in ["", "/a", "a/", "../a", "a/../b", "a//b", ".hidden", "a/.b", "a b", "a\\b", "ä", "a\0"] {
            assert!(!is_output_path(path), "{path}");
        }
    }
}
