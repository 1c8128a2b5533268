//! Backups of a state directory in one file, taken while a server uses it.
//!
//! A backup is an uncompressed tar archive (ustar) of plain files below the state directory, whose last entry,
//! `backup.json`, has the path, size and digest of each. A file whose path does not fit into a header is stored as
//! `long/N`, and the index has its path.
//!
//! # Order
//!
//! Objects, versions and outputs are written before the records that refer to them are committed, and never changed. A
//! job continues from its newest checkpoint, and its records then lead by at most the steps since. So checkpoints are
//! copied first, then each database as of one instant, then everything else. A restored server is in the state of one
//! that was killed at that instant. A checkpoint's manifest is locked while its parts are copied, so that no process
//! prunes them.
//!
//! Not copied: caches except tuned kernels, unfinished uploads, the server's lock, and what writers have not committed.

mod archive_writer;
mod checkpoint_copy;
mod restore;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use saggar_clock::UnixMillis;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::digest::Digest;
use crate::error::StoreError;
use crate::state_dir::StateDir;

use archive_writer::ArchiveWriter;
pub use restore::restore;

/// The version of the backup format that this build writes and reads.
pub const BACKUP_FORMAT: u64 = 1;
/// The name of the last entry.
const INDEX_ENTRY: &str = "backup.json";
/// Prefix of the names of entries whose paths are only in the index.
const LONG_PREFIX: &str = "long/";
/// Limit on the bytes of the index, which has about 200 bytes for each file.
const INDEX_BYTES_MAX: u64 = 1 << 30;
/// Limit on the bytes of a path in a backup.
const PATH_BYTES_MAX: usize = 4096;
/// The directories that are copied after the database, below the state directory.
const DIRECTORIES: [&str; 4] = ["datasets", "models", "jobs", "cache/shaders"];
/// The files that are copied after the database.
const FILES: [&str; 9] = [
    "keys.json",
    "key-usage.json",
    "secrets.json",
    "audit.log",
    "audit.log.1",
    "audit.log.2",
    "audit.log.3",
    "audit.log.4",
    "audit.log.5",
];

/// The content of `backup.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackupIndex {
    format: u64,
    /// The version of the program that wrote it.
    program: String,
    created_ms: UnixMillis,
    files: Vec<BackupFile>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackupFile {
    /// Its path below the state directory, with `/`.
    path: String,
    bytes: u64,
    sha256: Digest,
    /// The name of its entry, if that is not its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entry: Option<String>,
}

/// What a backup or a restore has copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupSummary {
    /// Number of files.
    pub files: u64,
    /// Their bytes together.
    pub bytes: u64,
}

/// The reason for which a backup could not be made or restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackupError {
    /// An error of the files.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database cannot be copied.
    #[error("a database cannot be copied: {reason}")]
    Database {
        /// The reason.
        reason: String,
    },
    /// The file is not a backup, or it is damaged.
    #[error("{reason}")]
    Malformed {
        /// The entry, and the reason.
        reason: String,
    },
    /// The file has another version of the format.
    #[error("it has backup format {found}, and this build reads format {expected}")]
    OtherFormat {
        /// Its format.
        found: u64,
        /// The format that this build reads.
        expected: u64,
    },
    /// The directory to restore to is not empty.
    #[error("{} exists and is not empty", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
}

fn malformed(reason: impl Into<String>) -> BackupError {
    BackupError::Malformed { reason: reason.into() }
}

/// Writes a backup of a state directory to the file `target`, which must not exist. A server and workers can use the
/// state directory meanwhile. The file is durable when this returns, and is removed after an error.
///
/// # Errors
/// Returns `Store` and `Database`.
pub fn back_up(home: &StateDir, target: &Path, now_ms: UnixMillis) -> Result<BackupSummary, BackupError> {
    // Fails if the file exists, which is not removed then.
    let archive = ArchiveWriter::create(home.root(), target)?;
    let copy = database_copy_path(target);
    let done = write_backup(home, archive, &copy, now_ms);
    let _ = std::fs::remove_file(&copy);
    if done.is_err() {
        let _ = std::fs::remove_file(target);
    }
    done
}

fn write_backup(
    home: &StateDir,
    mut archive: ArchiveWriter,
    copy: &Path,
    now_ms: UnixMillis,
) -> Result<BackupSummary, BackupError> {
    checkpoint_copy::copy_checkpoints(home, &mut archive)?;
    for database in [home.database(), home.external_runs()] {
        let Some(name) = database.file_name().and_then(|name| name.to_str()).filter(|_| database.is_file()) else {
            continue;
        };
        copy_database(&database, copy)?;
        archive.add_file_as(copy, name)?;
        std::fs::remove_file(copy).map_err(StoreError::io(copy))?;
    }
    // Checkpoints that were saved since would be ahead of the records.
    let objects = archive_writer::list(&home.objects())?.into_iter().filter(|path| !path.ends_with("checkpoints"));
    objects.filter(|path| path.is_dir()).try_for_each(|path| archive.add_directory(&path))?;
    for directory in DIRECTORIES {
        archive.add_directory(&home.root().join(directory))?;
    }
    for file in FILES {
        archive.add_optional_file(&home.root().join(file))?;
    }
    archive.finish(now_ms)
}

/// Returns the path of a database's copy while the backup is written: beside it, so that it has room.
fn database_copy_path(target: &Path) -> PathBuf {
    target.with_added_extension("records.part")
}

/// Copies a database as of one instant with SQLite's backup interface. Writers continue meanwhile: the copy is made
/// within one read transaction of the write-ahead log.
fn copy_database(from: &Path, to: &Path) -> Result<(), BackupError> {
    let copy = || -> rusqlite::Result<()> {
        let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        source.busy_timeout(std::time::Duration::from_millis(crate::limits::RECORDS_BUSY_MS.into()))?;
        let mut target = Connection::open(to)?;
        {
            let backup = rusqlite::backup::Backup::new(&source, &mut target)?;
            while backup.step(-1)? != rusqlite::backup::StepResult::Done {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
        // One file without a log beside it.
        target.pragma_update(None, "journal_mode", "DELETE")
    };
    crate::durable::make_private_file(to).map_err(StoreError::io(to))?;
    copy().map_err(|error| BackupError::Database { reason: error.to_string() })
}
