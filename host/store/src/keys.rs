//! Keys of clients: what each may do and how much of it, in one small file that is replaced as a whole.
//!
//! Only a key's SHA-256 is kept. That is enough, and a slow hash such as Argon2 would add nothing: those make the guessing
//! of what people think up expensive, and a key is 256 random bits, which nobody guesses at any speed. It would also let
//! strangers spend the server's time.
//!
//! Who changes the file holds `keys.lock`; who reads it needs no lock, for it changes by renaming. Deliberately elsewhere:
//! counting what a key has used, and which route asks for which scope (`serve`).

mod request_limits;
mod scope;
mod usage;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clock::UnixMillis;
use crate::digest::Digest;
use crate::durable;
use crate::error::StoreError;
use crate::limits::{KEY_PROJECTS_MAX, KEYS_MAX, MANIFEST_BYTES_MAX};
use crate::regular_file;
use crate::versions::is_name;

pub use request_limits::{ParseLimitError, QuotaPeriod, RateLimit, RequestQuota};
pub use scope::{KeyScope, ParseScopeError};
pub use usage::{KeyUsage, KeyUsageFile};

/// What every key begins with, so that people and scanners know one when they see it.
pub const KEY_PREFIX: &str = "sgr_";

/// The form of the file that this build reads and writes.
const FORMAT: u64 = 1;

/// A key as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// The part of the key's text that finds its record: 8 hexadecimal digits, no secret.
    pub id: String,
    /// What people call it; unique in the file.
    pub name: String,
    /// SHA-256 of the whole text.
    pub digest: Digest,
    /// What it may do.
    pub scopes: Vec<KeyScope>,
    /// The projects whose jobs it sees; none is all. Left out of the file where there is no such limit: a build that knows
    /// none of this reads the keys that it can honour, and refuses the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projects: Option<Vec<String>>,
    /// Requests in a short time.
    #[serde(default)]
    pub rate: Option<RateLimit>,
    /// Requests in a day or month.
    #[serde(default)]
    pub quota: Option<RequestQuota>,
    /// Jobs submitted with it that run at once; more wait.
    #[serde(default)]
    pub max_running_jobs: Option<u32>,
    /// Device seconds that jobs submitted with it may take; then they wait.
    #[serde(default)]
    pub gpu_seconds: Option<u64>,
    /// When it was made.
    pub created_ms: UnixMillis,
    /// When it ceases to be good.
    #[serde(default)]
    pub expires_ms: Option<UnixMillis>,
}

impl KeyRecord {
    /// Whether `text` is this key. Takes as long for a near miss as for a far one.
    pub fn matches_secret(&self, text: &str) -> bool {
        let found = Digest::of(text.as_bytes());
        let differing = found.bytes().iter().zip(self.digest.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differing) == 0
    }

    /// What it used of its quota in the day or month that is now.
    pub fn requests_used(&self, used: KeyUsage, now_ms: UnixMillis) -> u64 {
        let now = self.quota.is_some_and(|quota| quota.period.window(now_ms).0 <= used.since_ms);
        if now { used.requests } else { 0 }
    }

    /// What people and programs may see of it: nothing that opens anything.
    pub fn to_public_json(&self, used: u64) -> serde_json::Value {
        serde_json::json!({
            "id": self.id,
            "name": self.name,
            "scopes": self.scopes,
            "projects": self.projects,
            "rate": self.rate,
            "quota": self.quota,
            "max_running_jobs": self.max_running_jobs,
            "gpu_seconds": self.gpu_seconds,
            "quota_used": self.quota.map(|_| used),
            "created_ms": self.created_ms,
            "expires_ms": self.expires_ms,
        })
    }

    /// Whether its time is over.
    pub fn is_expired(&self, now_ms: UnixMillis) -> bool {
        self.expires_ms.is_some_and(|end| end <= now_ms)
    }
}

/// What a new key is to be. As JSON, limits are text, and what is left out is no limit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// Lower-case letters, digits and `._-`, at most 63 bytes.
    pub name: String,
    /// At least one.
    pub scopes: Vec<KeyScope>,
    /// The projects whose jobs it sees, if it is not to see those of all. Not with the scope `admin`.
    #[serde(default)]
    pub projects: Option<Vec<String>>,
    /// Requests in a short time, if there is to be a limit.
    #[serde(default)]
    pub rate: Option<RateLimit>,
    /// Requests in a day or month, if there is to be a limit.
    #[serde(default)]
    pub quota: Option<RequestQuota>,
    /// Jobs submitted with it that run at once, if there is to be a limit.
    #[serde(default)]
    pub max_running_jobs: Option<u32>,
    /// Device seconds that jobs submitted with it may take, if there is to be a limit.
    #[serde(default)]
    pub gpu_seconds: Option<u64>,
    /// When it ceases to be good, if ever.
    #[serde(default)]
    pub expires_ms: Option<UnixMillis>,
}

impl NewKey {
    /// What it may do and how much of it, in a few words: `predict 100/s 10000/d`, `jobs:read in digits,faces`.
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

/// The part of a key's text that finds its record; none where the text cannot be a key.
pub fn key_id(text: &str) -> Option<&str> {
    let (id, secret) = text.strip_prefix(KEY_PREFIX)?.split_once('_')?;
    let hexadecimal = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (id.len() == 8 && secret.len() == 64 && hexadecimal(id) && hexadecimal(secret)).then_some(id)
}

/// Failures with keys.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file is not one of ours.
    #[error("{} is not a file of keys that this build reads: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A name that no key can have.
    #[error(
        "`{name}` cannot be a key's name: lower-case letters, digits and `._-`, at most 63, a letter or digit first"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// A key that could do nothing.
    #[error("a key needs at least one scope of {}", KeyScope::names())]
    NoScope,
    /// A key that would see no project at all.
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
    /// A name that no project can have.
    #[error(
        "projects: `{name}` cannot be a project's name: lower-case letters, digits and `._-`, at most 63, a letter or \
         digit first"
    )]
    BadProject {
        /// The name.
        name: String,
    },
    /// A limit that the scope `admin` would undo.
    #[error(
        "projects: a key with the scope admin sees every project, so it cannot be limited to {projects}; leave the \
         projects out, or give it other scopes"
    )]
    AdminOfProjects {
        /// Those that were named.
        projects: String,
    },
    /// A time that has passed.
    #[error("a key cannot expire before it is made")]
    Expired,
    /// The name is taken.
    #[error("there is a key {name} already; `saggar key revoke {name}` ends it")]
    Exists {
        /// The name.
        name: String,
    },
    /// Too many.
    #[error("there are {max} keys, the most there can be")]
    TooMany {
        /// The maximum.
        max: usize,
    },
    /// No such key.
    #[error("no key {name}; `saggar key ls` lists them")]
    NotFound {
        /// The name.
        name: String,
    },
}

/// What a file's content is told apart by without reading it: it changes by renaming, so its number changes with it.
pub type FileStamp = Option<(u64, u64, std::time::SystemTime)>;

/// The file of keys. Clones are of the same file.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFileContents {
    format: u64,
    keys: Vec<KeyRecord>,
}

impl KeyFile {
    /// The file at `path`, which need not exist: then there are no keys.
    pub fn new(path: impl Into<PathBuf>) -> KeyFile {
        KeyFile { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every key, oldest first.
    ///
    /// # Errors
    /// `Store`; `Damaged`.
    pub fn read(&self) -> Result<Vec<KeyRecord>, KeyError> {
        let damaged = |reason: String| KeyError::Damaged { path: self.path.clone(), reason };
        match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::io(&self.path)(error).into()),
            Ok(meta) if meta.len() > MANIFEST_BYTES_MAX => return Err(damaged("it is too large".to_owned())),
            Ok(_) => {}
        }
        let bytes = regular_file::read(&self.path, MANIFEST_BYTES_MAX).map_err(StoreError::io(&self.path))?;
        let contents: KeyFileContents = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if contents.format != FORMAT {
            return Err(damaged(format!("it has format {}, and this build reads {FORMAT}", contents.format)));
        }
        Ok(contents.keys)
    }

    /// Tells one content from another; none where there is no file.
    pub fn stamp(&self) -> FileStamp {
        use std::os::unix::fs::MetadataExt;
        let meta = std::fs::metadata(&self.path).ok()?;
        Some((meta.ino(), meta.len(), meta.modified().ok()?))
    }

    /// Makes a key. The text that is returned is kept nowhere.
    ///
    /// # Errors
    /// `BadName`, `NoScope`, `NoProject`, `TooManyProjects`, `BadProject`, `AdminOfProjects`, `Expired`, `Exists`, `TooMany`;
    /// what [`KeyFile::read`] reports.
    pub fn create(&self, new: NewKey, now_ms: UnixMillis) -> Result<(KeyRecord, String), KeyError> {
        new.validate(now_ms)?;
        self.update(|keys| {
            if keys.iter().any(|key| key.name == new.name) {
                return Err(KeyError::Exists { name: new.name });
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
            let scopes = sorted_unique(new.scopes);
            let record = KeyRecord {
                id,
                name: new.name,
                digest: Digest::of(text.as_bytes()),
                scopes,
                projects: new.projects.map(sorted_unique),
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

    /// Ends a key, and returns what it was.
    ///
    /// # Errors
    /// `NotFound`; what [`KeyFile::read`] reports.
    pub fn revoke(&self, name: &str) -> Result<KeyRecord, KeyError> {
        self.update(|keys| match keys.iter().position(|key| key.name == name) {
            Some(at) => Ok(keys.remove(at)),
            None => Err(KeyError::NotFound { name: name.to_owned() }),
        })
    }

    fn update<T>(&self, work: impl FnOnce(&mut Vec<KeyRecord>) -> Result<T, KeyError>) -> Result<T, KeyError> {
        let _lock = durable::lock_for_update(&self.path)?;
        let mut keys = self.read()?;
        let done = work(&mut keys)?;
        let contents = KeyFileContents { format: FORMAT, keys };
        let text = serde_json::to_string_pretty(&contents).expect("records of text and numbers are JSON");
        durable::replace(&self.path, text.as_bytes()).map_err(StoreError::io(&self.path))?;
        Ok(done)
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
