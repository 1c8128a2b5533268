//! Moves the whole state of a single machine to a database and a bucket that servers share, or back.
//!
//! What is copied is read back from the destination and compared: each table of the records by a digest of its rows
//! (`records::transfer`), and each object or file by its SHA-256. The source is not changed.
//!
//! Until that is done the destination is marked: the directory by a file, the bucket by an object, the database by a document.
//! Nothing opens a marked one. The next migration with the same destination continues: it keeps objects that are right, and
//! replaces everything else.

use std::path::PathBuf;

use serde::Serialize;
use thiserror::Error;

use crate::digest::Digest;
use crate::error::{RecordError, StoreError};
use crate::objects::BlockingObjects;
use crate::records::TableDigest;
use crate::shared_file::SealingKey;

mod bucket_content;
mod content;
mod directory_content;
mod documents;
mod file_copy;
mod live_content;
mod object_copy;
mod to_directory;
mod to_shared;

pub use to_directory::{export_live, migrate_to_directory};
pub use to_shared::migrate_to_shared;

/// A database and a bucket that servers share.
#[derive(Debug)]
pub struct SharedStores {
    /// The URL of the database. It can contain a password.
    pub database: String,
    /// The bucket.
    pub objects: BlockingObjects,
    /// The key that seals secrets in the database.
    pub key: Option<SealingKey>,
}

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationProgress {
    /// Rows of the records that were copied or compared.
    Records {
        /// Whether they are compared.
        is_verification: bool,
        /// Their number.
        rows: u64,
    },
    /// Bytes of objects and files that were copied or compared.
    Content {
        /// Whether they are compared.
        is_verification: bool,
        /// Their number.
        bytes: u64,
        /// The number of all.
        bytes_total: u64,
    },
}

/// Objects or files of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContentCount {
    /// Such as `checkpoints`.
    pub kind: &'static str,
    /// Number of objects of the bucket, or of files of the directory.
    pub count: u64,
    /// Their bytes together.
    pub bytes: u64,
    /// A digest of their names and their digests.
    pub sha256: Digest,
}

/// Something of the source that is not in the destination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ContentLeft {
    /// Its path in the state directory, or its name in the bucket.
    pub name: String,
    /// Why it was not copied, and what to do about it.
    pub reason: &'static str,
}

/// What a migration has copied and compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationReport {
    /// The tables of the records.
    pub tables: Vec<TableDigest>,
    /// The objects or files by kind.
    pub content: Vec<ContentCount>,
    /// What was not copied.
    pub left: Vec<ContentLeft>,
}

/// The reason why a migration was refused or has failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MigrationError {
    /// An error of files or objects.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the records.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// The source is not a state directory.
    #[error("{} is not a state directory: it has no saggar.db", home.display())]
    NoState {
        /// The directory.
        home: PathBuf,
    },
    /// The directory has copies of what servers share.
    #[error(
        "{} is the state directory of one of several servers: what it has is in {}", home.display(), what
    )]
    IsCopy {
        /// The directory.
        home: PathBuf,
        /// Where its data is.
        what: &'static str,
    },
    /// Jobs run.
    #[error("{count} jobs are active in the source: {}", jobs.join(", "))]
    ActiveJobs {
        /// How many are.
        count: usize,
        /// The names of the first ones.
        jobs: Vec<String>,
    },
    /// Servers or workers use the source.
    #[error("servers and workers use the source: {}", hosts.join(", "))]
    SourceInUse {
        /// Their names.
        hosts: Vec<String>,
    },
    /// The source changed while it was copied.
    #[error("the source changed while it was copied: a server or a worker used it")]
    SourceChanged,
    /// The destination has data.
    #[error("the destination is not empty: {what}")]
    NotEmpty {
        /// What it has.
        what: String,
    },
    /// The records have a schema of another version.
    #[error("the records in {place} have schema {found}, and this build has schema {expected}")]
    OtherSchema {
        /// The database.
        place: String,
        /// Its version.
        found: i64,
        /// The version of this build.
        expected: i64,
    },
    /// There are secrets, and no key.
    #[error("there are secrets, and SAGGAR_SECRETS_KEY is not set")]
    NoSecretsKey,
    /// The secrets are sealed with another key.
    #[error("the secrets in the database are sealed with another key than SAGGAR_SECRETS_KEY")]
    OtherSecretsKey,
    /// Something in the destination is not what was read from the source.
    #[error("{what} differs: the source has {expected}, and the destination has {found}")]
    Differs {
        /// The table, the object or the file.
        what: String,
        /// What the source has.
        expected: String,
        /// What the destination has.
        found: String,
    },
    /// The source has a document that this build does not know.
    #[error("the document {name} is not known to this build")]
    UnknownDocument {
        /// Its name.
        name: String,
    },
}

/// Returns an error if the digests of two databases differ.
fn check_tables(source: &[TableDigest], target: &[TableDigest]) -> Result<(), MigrationError> {
    let different = source.iter().zip(target).find(|(expected, found)| expected != found);
    match different {
        None => Ok(()),
        Some((expected, found)) => {
            let describe = |it: &TableDigest| format!("{} rows with SHA-256 {}", it.rows, it.sha256);
            let what = format!("table {}", expected.table);
            Err(MigrationError::Differs { what, expected: describe(expected), found: describe(found) })
        }
    }
}
