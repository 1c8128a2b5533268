//! Secrets that jobs may be granted, by name: one file that only its owner may read, replaced as a whole.
//!
//! Values are in no record, log or listing; who starts an attempt reads those that its job names.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::durable;
use crate::error::StoreError;
use crate::limits::{MANIFEST_BYTES_MAX, SECRET_BYTES_MAX, SECRET_BYTES_MIN, SECRETS_MAX};
use crate::{regular_file, versions};

/// The file of secrets. Clones are of the same file.
#[derive(Clone, Debug)]
pub struct Secrets {
    path: PathBuf,
}

/// Why a secret cannot be kept or had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SecretError {
    /// Not a name.
    #[error("secret {name:?}: {}", versions::NAME_RULE)]
    BadName {
        /// What was given.
        name: String,
    },
    /// Too short to be told from other text in a log, or too long.
    #[error("secret {name}: {bytes} bytes, expected {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}")]
    BadLength {
        /// The secret.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// No more are kept.
    #[error("there are {SECRETS_MAX} secrets already")]
    TooMany,
    /// The file holds something else.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file system said no.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Secrets {
    /// The file at `path`, which need not exist: then there are none.
    pub fn new(path: impl Into<PathBuf>) -> Secrets {
        Secrets { path: path.into() }
    }

    /// Names, sorted.
    ///
    /// # Errors
    /// `Store`; `Damaged`.
    pub fn names(&self) -> Result<Vec<String>, SecretError> {
        Ok(self.read()?.into_keys().collect())
    }

    /// The values of these names; names that there are not are left out.
    ///
    /// # Errors
    /// `Store`; `Damaged`.
    pub fn values(&self, names: &[String]) -> Result<BTreeMap<String, String>, SecretError> {
        let mut all = self.read()?;
        Ok(names.iter().filter_map(|name| all.remove_entry(name)).collect())
    }

    /// Keeps a value, in the place of one of that name.
    ///
    /// # Errors
    /// `BadName`; `BadLength`; `TooMany`; `Store`; `Damaged`.
    pub fn set(&self, name: &str, value: &str) -> Result<(), SecretError> {
        if !versions::is_name(name) {
            return Err(SecretError::BadName { name: name.to_owned() });
        }
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&value.len()) {
            return Err(SecretError::BadLength { name: name.to_owned(), bytes: value.len() });
        }
        self.change(|secrets| {
            secrets.insert(name.to_owned(), value.to_owned());
            if secrets.len() > SECRETS_MAX { Err(SecretError::TooMany) } else { Ok(()) }
        })
    }

    /// Forgets a secret. False where there is none of that name.
    ///
    /// # Errors
    /// `Store`; `Damaged`.
    pub fn remove(&self, name: &str) -> Result<bool, SecretError> {
        self.change(|secrets| Ok(secrets.remove(name).is_some()))
    }

    fn read(&self) -> Result<BTreeMap<String, String>, SecretError> {
        match regular_file::read(&self.path, MANIFEST_BYTES_MAX) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                // The reason names a place, never what is there.
                let reason = format!("line {}, column {} is not as it was written", error.line(), error.column());
                SecretError::Damaged { path: self.path.clone(), reason }
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(StoreError::io(&self.path)(error).into()),
        }
    }

    fn change<T>(
        &self,
        work: impl FnOnce(&mut BTreeMap<String, String>) -> Result<T, SecretError>,
    ) -> Result<T, SecretError> {
        let _lock = durable::locked(&self.path)?;
        let mut secrets = self.read()?;
        let done = work(&mut secrets)?;
        let text = serde_json::to_vec_pretty(&secrets).expect("text is JSON");
        durable::replace(&self.path, &text).map_err(StoreError::io(&self.path))?;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn secrets_are_kept_for_their_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secrets.json");
        let secrets = Secrets::new(&path);
        assert!(secrets.names().unwrap().is_empty());
        secrets.set("github-token", "hunter2hunter2").unwrap();
        secrets.set("other", "something else").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(secrets.names().unwrap(), ["github-token", "other"]);
        let wanted = ["github-token".to_owned(), "absent".to_owned()];
        let values = Secrets::new(&path).values(&wanted).unwrap();
        assert_eq!(values.into_iter().collect::<Vec<_>>(), [("github-token".to_owned(), "hunter2hunter2".to_owned())]);
        assert!(secrets.remove("other").unwrap() && !secrets.remove("other").unwrap());
        assert_eq!(secrets.names().unwrap(), ["github-token"]);
    }

    #[test]
    fn what_cannot_be_kept_is_refused_and_never_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secrets.json");
        let secrets = Secrets::new(&path);
        assert!(matches!(secrets.set("../x", "long enough"), Err(SecretError::BadName { .. })));
        assert!(matches!(secrets.set("x", "short"), Err(SecretError::BadLength { bytes: 5, .. })));
        std::fs::write(&path, "{\"token\": hunter2hunter2}").unwrap();
        let error = secrets.names().unwrap_err().to_string();
        assert!(error.contains("damaged") && !error.contains("hunter"), "{error}");
    }
}
