//! Secrets that jobs can be granted, by name: one file that only its owner can read, replaced as a whole.
//!
//! Values never appear in records, logs or listings; the process that starts an attempt reads those that its job names.
//! A secret lists the projects whose keys can grant it to jobs. Only keys without a project limit can grant a secret
//! that lists no project. Servers of a database can have their secrets in common: then the file is a copy of a document
//! that is sealed with a key that the database does not have.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::StoreError;
use crate::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN, SECRETS_MAX};
use crate::projects::{self, ProjectsError};
use crate::records::DocumentRecords;
use crate::rights::{AccessAction, AccessRights};
use crate::shared_file::{SealingKey, SharedFile, SharedFileError};
use crate::state_dir::StateDir;
use crate::versions;

/// A stored secret. One without projects is stored as its value alone, which is also the format of earlier builds.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum StoredSecret {
    Value(String),
    Listed { value: String, projects: Vec<String> },
}

impl StoredSecret {
    fn new(value: &str, projects: Vec<String>) -> StoredSecret {
        let value = value.to_owned();
        if projects.is_empty() { StoredSecret::Value(value) } else { StoredSecret::Listed { value, projects } }
    }

    fn projects(&self) -> &[String] {
        match self {
            StoredSecret::Value(_) => &[],
            StoredSecret::Listed { projects, .. } => projects,
        }
    }

    fn into_value(self) -> String {
        let (StoredSecret::Value(value) | StoredSecret::Listed { value, .. }) = self;
        value
    }
}

/// The document of the secrets that servers have in common.
pub(crate) const SECRETS_DOCUMENT: &str = "secrets";

/// The file of secrets, which servers can have in common. Clones share the file.
#[derive(Clone, Debug)]
pub struct SecretStore {
    file: SharedFile,
}

/// The reason why a secret cannot be stored or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The name is not valid.
    #[error("secret {name:?}: {}", versions::NAME_RULE)]
    BadName {
        /// The name.
        name: String,
    },
    /// Too short to be distinguished from other text in a log, or too long.
    #[error("secret {name}: {bytes} bytes, expected {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}")]
    BadLength {
        /// The secret.
        name: String,
        /// Its length in bytes.
        bytes: usize,
    },
    /// The maximum number of secrets is stored.
    #[error("there are {SECRETS_MAX} secrets already")]
    TooMany,
    /// The list of projects is not valid.
    #[error(transparent)]
    Projects(#[from] ProjectsError),
    /// The file cannot be parsed.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// The servers' common secrets cannot be read or changed.
    #[error(transparent)]
    Shared(SharedFileError),
    /// The file system reported an error.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<SharedFileError> for SecretError {
    fn from(error: SharedFileError) -> SecretError {
        match error {
            SharedFileError::Store(error) => SecretError::Store(error),
            error => SecretError::Shared(error),
        }
    }
}

impl StateDir {
    /// Returns the store of secrets that jobs can be granted.
    pub fn secrets(&self) -> SecretStore {
        SecretStore::new(self.root().join("secrets.json"))
    }
}

impl SecretStore {
    /// Returns the store of the file at `path`. A missing file means that no secrets are stored.
    pub fn new(path: impl Into<PathBuf>) -> SecretStore {
        SecretStore { file: SharedFile::new(path) }
    }

    /// Makes the secrets those that all servers with these records have in common, sealed with `key` in the records. See
    /// [`SharedFile::share`].
    ///
    /// # Errors
    /// Returns `Store`; `Shared`.
    pub fn share(self, records: Arc<dyn DocumentRecords>, key: SealingKey) -> Result<SecretStore, SecretError> {
        Ok(SecretStore { file: self.file.share_sealed(SECRETS_DOCUMENT, records, key)? })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.file.path()
    }

    /// Returns whether no secret is stored. A file that cannot be read may have some.
    pub(crate) fn is_empty(&self) -> bool {
        self.read().is_ok_and(|secrets| secrets.is_empty())
    }

    /// Returns whether servers have the secrets in common.
    pub fn is_shared(&self) -> bool {
        self.file.is_shared()
    }

    /// Makes the secrets this server's alone again.
    ///
    /// # Errors
    /// Returns `Store`.
    pub fn stop_sharing(&self) -> Result<(), SecretError> {
        Ok(self.file.stop_sharing()?)
    }

    /// Fetches secrets that other servers have changed. Does nothing if they are not shared.
    ///
    /// # Errors
    /// Returns `Store`; `Shared`.
    pub fn refresh(&self) -> Result<(), SecretError> {
        Ok(self.file.refresh()?)
    }

    /// Returns the names, sorted, with the projects of each; only those that `rights` allow.
    ///
    /// # Errors
    /// Returns `Store`; `Damaged`.
    pub fn names(&self, rights: &AccessRights) -> Result<BTreeMap<String, Vec<String>>, SecretError> {
        let listed = self.read()?.into_iter().map(|(name, secret)| (name, secret.projects().to_vec()));
        Ok(listed.filter(|(_, projects)| rights.allows_projects(AccessAction::UseSecret, Some(projects))).collect())
    }

    /// Returns the values of these names. Names that do not exist, or that `rights` do not allow, are omitted.
    ///
    /// # Errors
    /// Returns `Store`; `Damaged`.
    pub fn values(&self, names: &[String], rights: &AccessRights) -> Result<BTreeMap<String, String>, SecretError> {
        let mut all = self.read()?;
        let may = |secret: &StoredSecret| rights.check(AccessAction::UseSecret, "", Some(secret.projects())).is_ok();
        let found = names.iter().filter_map(|name| all.remove_entry(name)).filter(|(_, secret)| may(secret));
        Ok(found.map(|(name, secret)| (name, secret.into_value())).collect())
    }

    /// Stores a value, replacing any with the same name. If `projects` is `None`, the previous list of projects is
    /// kept.
    ///
    /// # Errors
    /// Returns `BadName`; `BadLength`; `Projects`; `TooMany`; `Store`; `Damaged`.
    pub fn set(&self, name: &str, value: &str, projects: Option<Vec<String>>) -> Result<(), SecretError> {
        if !versions::is_name(name) {
            return Err(SecretError::BadName { name: name.to_owned() });
        }
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&value.len()) {
            return Err(SecretError::BadLength { name: name.to_owned(), bytes: value.len() });
        }
        let projects = projects.map(projects::validate_project_names).transpose()?;
        self.update(|secrets| {
            let before = || secrets.get(name).map(|secret| secret.projects().to_vec()).unwrap_or_default();
            let secret = StoredSecret::new(value, projects.clone().unwrap_or_else(before));
            secrets.insert(name.to_owned(), secret);
            if secrets.len() > SECRETS_MAX { Err(SecretError::TooMany) } else { Ok(()) }
        })
    }

    /// Deletes a secret. Returns `false` if it does not exist.
    ///
    /// # Errors
    /// Returns `Store`; `Damaged`.
    pub fn remove(&self, name: &str) -> Result<bool, SecretError> {
        self.update(|secrets| Ok(secrets.remove(name).is_some()))
    }

    fn read(&self) -> Result<BTreeMap<String, StoredSecret>, SecretError> {
        self.parse(self.file.read_text()?.as_deref())
    }

    fn parse(&self, text: Option<&str>) -> Result<BTreeMap<String, StoredSecret>, SecretError> {
        let Some(text) = text else { return Ok(BTreeMap::new()) };
        serde_json::from_str(text).map_err(|error| {
            // The reason gives the position only, because the content is secret.
            let reason = format!("line {}, column {} is not as it was written", error.line(), error.column());
            SecretError::Damaged { path: self.file.path().to_owned(), reason }
        })
    }

    fn update<T>(
        &self,
        mut work: impl FnMut(&mut BTreeMap<String, StoredSecret>) -> Result<T, SecretError>,
    ) -> Result<T, SecretError> {
        self.file.update(|text| {
            let mut secrets = self.parse(text)?;
            let done = work(&mut secrets)?;
            Ok((serde_json::to_string_pretty(&secrets).expect("text is JSON"), done))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::keys::KeyScope;
    use crate::rights::tests::key_rights;

    fn names(secrets: &SecretStore, rights: &AccessRights) -> Vec<String> {
        secrets.names(rights).unwrap().into_keys().collect()
    }

    #[test]
    fn the_secret_file_is_readable_by_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secrets.json");
        let secrets = SecretStore::new(&path);
        let all = AccessRights::default();
        assert!(names(&secrets, &all).is_empty());
        secrets.set("github-token", "hunter2hunter2", None).unwrap();
        secrets.set("other", "something else", None).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(&secrets, &all), ["github-token", "other"]);
        let wanted = ["github-token".to_owned(), "absent".to_owned()];
        let values = SecretStore::new(&path).values(&wanted, &all).unwrap();
        assert_eq!(values.into_iter().collect::<Vec<_>>(), [("github-token".to_owned(), "hunter2hunter2".to_owned())]);
        assert!(secrets.remove("other").unwrap() && !secrets.remove("other").unwrap());
        assert_eq!(names(&secrets, &all), ["github-token"]);
    }

    #[test]
    fn a_limited_key_reads_only_the_secrets_of_its_projects() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secrets.json");
        // The format of earlier builds.
        std::fs::write(&path, r#"{"old": "something old"}"#).unwrap();
        let secrets = SecretStore::new(&path);
        let (digits, faces) = (vec!["digits".to_owned()], vec!["faces".to_owned()]);
        secrets.set("mine", "something mine", Some(digits.clone())).unwrap();
        secrets.set("theirs", "something theirs", Some(faces)).unwrap();
        let limited = key_rights(&[KeyScope::JobsWrite], &["digits"]);
        let wanted = ["mine", "old", "theirs"].map(str::to_owned);
        let values = |rights| secrets.values(&wanted, rights).unwrap().into_keys().collect::<Vec<_>>();
        assert_eq!((names(&secrets, &limited), values(&limited)), (vec!["mine".to_owned()], vec!["mine".to_owned()]));
        let all = key_rights(&[KeyScope::JobsWrite], &[]);
        assert_eq!((names(&secrets, &all), values(&all)), (wanted.to_vec(), wanted.to_vec()));
        assert_eq!(values(&key_rights(&[KeyScope::JobsRead], &[])), [""; 0], "it takes the scope, too");
        // A new value keeps the list; an empty list removes it.
        secrets.set("mine", "something newer", None).unwrap();
        assert_eq!(secrets.names(&limited).unwrap()["mine"], digits);
        secrets.set("mine", "something newer", Some(Vec::new())).unwrap();
        assert!(names(&secrets, &limited).is_empty());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(r#""mine": "something newer""#) && text.contains(r#""old": "something old""#), "{text}");
        let bad = secrets.set("mine", "something newer", Some(vec!["A b".to_owned()]));
        assert!(matches!(bad, Err(SecretError::Projects(_))));
    }

    #[test]
    fn invalid_secrets_are_refused_and_not_echoed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secrets.json");
        let secrets = SecretStore::new(&path);
        assert!(matches!(secrets.set("../x", "long enough", None), Err(SecretError::BadName { .. })));
        assert!(matches!(secrets.set("x", "short", None), Err(SecretError::BadLength { bytes: 5, .. })));
        std::fs::write(&path, "{\"token\": hunter2hunter2}").unwrap();
        let error = secrets.names(&AccessRights::default()).unwrap_err().to_string();
        assert!(error.contains("damaged") && !error.contains("hunter"), "{error}");
    }
}
