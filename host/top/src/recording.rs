//! Recordings: files with one refresh in each line, as `--json` prints them.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use crate::documents::RefreshDocument;

/// Maximum bytes of a line.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Maximum refreshes of a recording that is shown. The oldest are left out.
pub(crate) const REFRESHES_MAX: usize = 50_000;

/// A recording that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// A line is not a refresh.
    #[error("{}:{line}: expected a line of `saggar top --json`: {error}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// There is no line.
    #[error("{}: the recording has no refresh", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// A file that refreshes are appended to.
#[derive(Debug)]
pub struct RecordingFile {
    path: PathBuf,
    file: File,
}

impl RecordingFile {
    /// Creates the file, or continues one that exists.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Result<RecordingFile, RecordingError> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.map_err(|error| RecordingError::Io { path: path.to_owned(), error })?;
        Ok(RecordingFile { path: path.to_owned(), file })
    }

    /// Appends a refresh.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&mut self, refresh: &RefreshDocument) -> Result<(), RecordingError> {
        let mut line = serde_json::to_vec(refresh).expect("documents have text as keys");
        line.push(b'\n');
        self.file.write_all(&line).map_err(|error| RecordingError::Io { path: self.path.clone(), error })
    }
}

/// Reads the refreshes of a recording, by rising time. A last line without an end, which a killed program left, is left
/// out.
///
/// # Errors
/// The file cannot be read, has no refresh, or a line is not one.
pub fn read_recording(path: &Path) -> Result<Vec<RefreshDocument>, RecordingError> {
    let io_error = |error| RecordingError::Io { path: path.to_owned(), error };
    let mut reader = BufReader::new(File::open(path).map_err(io_error)?);
    let mut refreshes: std::collections::VecDeque<RefreshDocument> = std::collections::VecDeque::new();
    for line in 1.. {
        let mut bytes = Vec::new();
        std::io::Read::take(&mut reader, LINE_BYTES_MAX).read_until(b'\n', &mut bytes).map_err(io_error)?;
        let is_ended = bytes.last() == Some(&b'\n');
        if bytes.is_empty() {
            break;
        }
        match serde_json::from_slice::<RefreshDocument>(&bytes) {
            Ok(refresh) => refreshes.push_back(refresh),
            Err(_) if !is_ended && (bytes.len() as u64) < LINE_BYTES_MAX && !refreshes.is_empty() => break,
            Err(error) => return Err(RecordingError::Line { path: path.to_owned(), line, error }),
        }
        if refreshes.len() > REFRESHES_MAX {
            refreshes.pop_front();
        }
    }
    if refreshes.is_empty() {
        return Err(RecordingError::Empty { path: path.to_owned() });
    }
    let mut refreshes = Vec::from(refreshes);
    refreshes.sort_by_key(|refresh| refresh.at_ms);
    Ok(refreshes)
}
