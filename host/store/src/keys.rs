//! API keys: the scopes and limits of each client, in one small file that is replaced as a whole.
//!
//! Only a key's SHA-256 is stored. A slow hash such as Argon2 would not help: it makes guessing passwords expensive,
//! but a key is 256 random bits, which cannot be guessed at any speed. It would also let unauthenticated clients
//! consume the server's time.
//!
//! Writers of the file hold `keys.lock`. Readers need no lock, because the file is replaced by renaming. Servers with a
//! database have their keys in common ([`SharedFile`]). Deliberately
//! elsewhere: counting the requests of a key, and which route requires which scope (`serve`).

mod request_limits;
mod scope;
mod usage;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saggar_clock::UnixMillis;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::digest::Digest;
use crate::durable;
use crate::error::StoreError;
use crate::limits::{KEY_PROJECTS_MAX, KEYS_MAX, MANIFEST_BYTES_MAX};
use crate::records::DocumentRecords;
use crate::regular_file;
use crate::shared_file::{SharedFile, SharedFileError};
use crate::versions::is_name;

pub use request_limits::{ParseLimitError, QuotaPeriod, RateLimit, RequestQuota};
pub use scope::{KeyScope, ParseScopeError};
pub use usage::{KeyUsage, KeyUsageFile};

/// The prefix of every key, which lets people and secret scanners recognize one.
pub const KEY_PREFIX: &str = "sgr_";

/// The name of the document of keys in records that servers have in common.
pub(crate) const KEYS_DOCUMENT: &str = "keys";

/// The format of the file that this build reads and writes.
pub(crate) const FORMAT: u64 = 1;

/// A stored key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// The part of the key's text that identifies its record: 8 hexadecimal digits, not secret.
    pub id: String,
    /// Its display name; unique in the file.
    pub name: String,
    /// SHA-256 of the key's whole text.
    pub digest: Digest,
    /// The scopes.
    pub scopes: Vec<KeyScope>,
    /// The projects whose jobs it sees; `None` means all. Omitted from the file if there is no such limit, so that
    /// builds without this field read the keys they can enforce and refuse the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projects: Option<Vec<String>>,
    /// The limit on requests in a short time.
    #[serde(default)]
    pub rate: Option<RateLimit>,
    /// The limit on requests per day or month.
    #[serde(default)]
    pub quota: Option<RequestQuota>,
    /// The limit on jobs submitted with it that run at once; more are queued.
    #[serde(default)]
    pub max_running_jobs: Option<u32>,
    /// The limit on device seconds of jobs submitted with it; beyond it they stay queued.
    #[serde(default)]
    pub gpu_seconds: Option<u64>,
    /// The time of its creation.
    pub created_ms: UnixMillis,
    /// The time at which it expires.
    #[serde(default)]
    pub expires_ms: Option<UnixMillis>,
}

impl KeyRecord {
    /// Returns whether `text` is this key, in constant time.
    pub fn matches_secret(&self, text: &str) -> bool {
        let found = Digest::of(text.as_bytes());
        let differing = found.bytes().iter().zip(self.digest.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differing) == 0
    }

    /// Returns the requests that it used of its quota in the current day or month.
    pub fn requests_used(&self, used: KeyUsage, now_ms: UnixMillis) -> u64 {
        let now = self.quota.is_some_and(|quota| quota.period.window(now_ms).0 <= used.since_ms);
        if now { used.requests } else { 0 }
    }

    /// Returns whether the key has expired.
    pub fn is_expired(&self, now_ms: UnixMillis) -> bool {
        self.expires_ms.is_some_and(|end| end <= now_ms)
    }
}

/// The properties of a new key.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Lower-case letters, digits and `._-`, at most 63 bytes.
    pub name: String,
    /// At least one.
    pub scopes: Vec<KeyScope>,
    /// The projects whose jobs it sees; `None` means all. Not allowed with the scope `admin`.
    pub projects: Option<Vec<String>>,
    /// The limit on requests in a short time; `None` means no limit.
    pub rate: Option<RateLimit>,
    /// The limit on requests per day or month; `None` means no limit.
    pub quota: Option<RequestQuota>,
    /// The limit on jobs submitted with it that run at once; `None` means no limit.
    pub max_running_jobs: Option<u32>,
    /// The limit on device seconds of jobs submitted with it; `None` means no limit.
    pub gpu_seconds: Option<u64>,
    /// The time at which it expires; `None` means never.
    pub expires_ms: Option<UnixMillis>,
}

impl NewKey {
    /// Returns its scopes and limits as a short text, such as `predict 100/s 10000/d` or `jobs:read in digits,faces`.
    pub fn summary(&self) -> String {
        let mut words: Vec<String> = self.scopes.iter().map(KeyScope::to_string).collect();
        words.extend(self.projects.as_ref().map(|projects| format!("in {}", projects.join(","))));
        words.extend(self.rate.map(|rate| rate.to_string()));
        words.extend(self.quota.map(|quota| quota.to_string()));
        words.extend(self.max_running_jobs.map(|jobs| format!("{jobs} jobs")));
        words.extend(self.gpu_seconds.map(|seconds| format!("{seconds} GPU s")));
        words.join(" ")
    }

    fn validate(&self, now_ms: UnixMillis) -> Result<(), KeyError> {
        if !is_name(&self.name) {
            return Err(KeyError::BadName { name: self.name.clone() });
        }
        if self.scopes.is_empty() {
            return Err(KeyError::NoScope);
        }
        if self.expires_ms.is_some_and(|end| end <= now_ms) {
            return Err(KeyError::Expired);
        }
        let Some(projects) = &self.projects else { return Ok(()) };
        if projects.is_empty() {
            return Err(KeyError::NoProject);
        }
        if projects.len() > KEY_PROJECTS_MAX {
            return Err(KeyError::TooManyProjects { count: projects.len(), max: KEY_PROJECTS_MAX });
        }
        if let Some(name) = projects.iter().find(|name| !is_name(name)) {
            return Err(KeyError::BadProject { name: name.chars().take(80).collect() });
        }
        if self.scopes.contains(&KeyScope::Admin) {
            return Err(KeyError::AdminOfProjects { projects: projects.join(", ") });
        }
        Ok(())
    }
}

/// Returns the part of a key's text that identifies its record, or `None` if the text is not a key.
pub fn key_id(text: &str) -> Option<&str> {
    let (id, secret) = text.strip_prefix(KEY_PREFIX)?.split_once('_')?;
    let hexadecimal = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (id.len() == 8 && secret.len() == 64 && hexadecimal(id) && hexadecimal(secret)).then_some(id)
}

/// Errors of keys.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// An error of the file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the records that several servers have in common, or the file is only a copy of a document in them.
    #[error(transparent)]
    Shared(SharedFileError),
    /// The file is not a key file that this build reads.
    #[error("{} is not a file of keys that this build reads: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// A name that is not valid for a key.
    #[error(
        "`{name}` cannot be a key's name: lower-case letters, digits and `._-`, at most 63, a letter or digit first"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// A key without scopes.
    #[error("a key needs at least one scope of {}", KeyScope::names())]
    NoScope,
    /// An empty list of projects.
    #[error("projects: a key that is limited to projects names at least one, such as digits; left out, it sees all")]
    NoProject,
    /// Too many projects.
    #[error("projects: {count} of them, and a key names at most {max}; left out, it sees all")]
    TooManyProjects {
        /// How many were named.
        count: usize,
        /// The maximum.
        max: usize,
    },
    /// A name that is not valid for a project.
    #[error(
        "projects: `{name}` cannot be a project's name: lower-case letters, digits and `._-`, at most 63, a letter or \
         digit first"
    )]
    BadProject {
        /// The name.
        name: String,
    },
    /// A project limit on a key with the scope `admin`, which would override it.
    #[error(
        "projects: a key with the scope admin sees every project, so it cannot be limited to {projects}; leave the \
         projects out, or give it other scopes"
    )]
    AdminOfProjects {
        /// The projects that were named.
        projects: String,
    },
    /// An expiry time in the past.
    #[error("a key cannot expire before it is made")]
    Expired,
    /// The name is taken.
    #[error("there is a key {name} already; `saggar key revoke {name}` ends it")]
    Exists {
        /// The name.
        name: String,
    },
    /// The maximum number of keys exists.
    #[error("there are {max} keys, the most there can be")]
    TooMany {
        /// The maximum.
        max: usize,
    },
    /// The key does not exist.
    #[error("no key {name}; `saggar key ls` lists them")]
    NotFound {
        /// The name.
        name: String,
    },
}

impl From<SharedFileError> for KeyError {
    fn from(error: SharedFileError) -> KeyError {
        match error {
            SharedFileError::Store(error) => KeyError::Store(error),
            error => KeyError::Shared(error),
        }
    }
}

/// Identifies a file's content without reading it. The file is replaced by renaming, so its inode number changes with
/// its content.
pub type FileStamp = Option<(u64, u64, std::time::SystemTime)>;

/// The file of keys, which servers can have in common. Clones share the file.
#[derive(Clone, Debug)]
pub struct KeyFile {
    file: SharedFile,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFileContents {
    format: u64,
    keys: Vec<KeyRecord>,
}

impl KeyFile {
    /// Returns the store of the file at `path`. A missing file means that no keys exist.
    pub fn new(path: impl Into<PathBuf>) -> KeyFile {
        KeyFile { file: SharedFile::new(path) }
    }

    /// Makes the keys those that all servers with these records have in common. See [`SharedFile::share`].
    ///
    /// # Errors
    /// Returns `Store`; `Records`.
    pub fn share(self, records: Arc<dyn DocumentRecords>) -> Result<KeyFile, KeyError> {
        Ok(KeyFile { file: self.file.share(KEYS_DOCUMENT, records)? })
    }

    /// Makes the keys this server's alone, with those that it has.
    ///
    /// # Errors
    /// Returns `Store`.
    pub fn stop_sharing(&self) -> Result<(), KeyError> {
        Ok(self.file.stop_sharing()?)
    }

    /// Fetches keys that other servers have changed. Does nothing if the file is not shared.
    ///
    /// # Errors
    /// Returns `Store`; `Records`.
    pub fn refresh(&self) -> Result<(), KeyError> {
        Ok(self.file.refresh()?)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns every key, oldest first.
    ///
    /// # Errors
    /// Returns `Store`; `Damaged`.
    pub fn read(&self) -> Result<Vec<KeyRecord>, KeyError> {
        let damaged = |reason: String| KeyError::Damaged { path: self.path().to_owned(), reason };
        match std::fs::metadata(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::io(self.path())(error).into()),
            Ok(meta) if meta.len() > MANIFEST_BYTES_MAX => return Err(damaged("it is too large".to_owned())),
            Ok(_) => {}
        }
        let bytes = regular_file::read(self.path(), MANIFEST_BYTES_MAX).map_err(StoreError::io(self.path()))?;
        self.parse(&bytes)
    }

    fn parse(&self, bytes: &[u8]) -> Result<Vec<KeyRecord>, KeyError> {
        let damaged = |reason: String| KeyError::Damaged { path: self.path().to_owned(), reason };
        let contents: KeyFileContents = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
        if contents.format != FORMAT {
            return Err(damaged(format!("it has format {}, and this build reads {FORMAT}", contents.format)));
        }
        Ok(contents.keys)
    }

    /// Returns a stamp that changes with the content, or `None` if the file does not exist.
    pub fn stamp(&self) -> FileStamp {
        use std::os::unix::fs::MetadataExt;
        let meta = std::fs::metadata(self.path()).ok()?;
        Some((meta.ino(), meta.len(), meta.modified().ok()?))
    }

    /// Creates a key. The returned text is not stored anywhere.
    ///
    /// # Errors
    /// Returns `BadName`, `NoScope`, `NoProject`, `TooManyProjects`, `BadProject`, `AdminOfProjects`, `Expired`,
    /// `Exists`, `TooMany`, or an error of [`KeyFile::read`].
    pub fn create(&self, new: NewKey, now_ms: UnixMillis) -> Result<(KeyRecord, String), KeyError> {
        new.validate(now_ms)?;
        self.update(|keys| {
            if keys.iter().any(|key| key.name == new.name) {
                return Err(KeyError::Exists { name: new.name.clone() });
            }
            if keys.len() >= KEYS_MAX {
                return Err(KeyError::TooMany { max: KEYS_MAX });
            }
            let (id, text) = loop {
                let id = to_hex(&durable::random_bytes::<4>());
                if keys.iter().all(|key| key.id != id) {
                    let text = format!("{KEY_PREFIX}{id}_{}", to_hex(&durable::random_bytes::<32>()));
                    break (id, text);
                }
            };
            let scopes = sorted_unique(new.scopes.clone());
            let record = KeyRecord {
                id,
                name: new.name.clone(),
                digest: Digest::of(text.as_bytes()),
                scopes,
                projects: new.projects.clone().map(sorted_unique),
                rate: new.rate,
                quota: new.quota,
                max_running_jobs: new.max_running_jobs,
                gpu_seconds: new.gpu_seconds,
                created_ms: now_ms,
                expires_ms: new.expires_ms,
            };
            keys.push(record.clone());
            Ok((record, text))
        })
    }

    /// Deletes a key and returns its record.
    ///
    /// # Errors
    /// Returns `NotFound`, or an error of [`KeyFile::read`].
    pub fn revoke(&self, name: &str) -> Result<KeyRecord, KeyError> {
        self.update(|keys| match keys.iter().position(|key| key.name == name) {
            Some(at) => Ok(keys.remove(at)),
            None => Err(KeyError::NotFound { name: name.to_owned() }),
        })
    }

    fn update<T>(&self, mut change: impl FnMut(&mut Vec<KeyRecord>) -> Result<T, KeyError>) -> Result<T, KeyError> {
        self.file.update(|text| {
            let mut keys = text.map_or(Ok(Vec::new()), |text| self.parse(text.as_bytes()))?;
            let value = change(&mut keys)?;
            let contents = KeyFileContents { format: FORMAT, keys };
            let text = serde_json::to_string_pretty(&contents).expect("records of text and numbers are JSON");
            Ok((text, value))
        })
    }
}

fn sorted_unique<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort_unstable();
    values.dedup();
    values
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
