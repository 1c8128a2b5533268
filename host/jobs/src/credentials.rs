//! The credentials that a launcher gives to a worker: where to connect, for which attempt, and a one-time token. They
//! are passed in the environment or in a file, never as arguments, which every user of a machine can read.

use std::fmt;
use std::path::{Path, PathBuf};

use saggar_store::records::JobLease;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::transport::WorkerAddress;

/// The environment variable that contains the credentials as JSON.
pub const CREDENTIALS_VARIABLE: &str = "SAGGAR_WORKER_CREDENTIALS";
/// The environment variable that contains the path of a file with the credentials.
pub const CREDENTIALS_FILE_VARIABLE: &str = "SAGGAR_WORKER_CREDENTIALS_FILE";

/// A secret that authenticates one connection of one attempt's worker. Its `Debug` text does not contain it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerToken(String);

impl WorkerToken {
    /// Returns a new random token.
    pub(crate) fn random() -> WorkerToken {
        WorkerToken(saggar_store::random_hex::<32>())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for WorkerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerToken(..)")
    }
}

/// What a worker needs to reach its supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCredentials {
    /// The address of the server.
    pub address: WorkerAddress,
    /// The attempt.
    #[serde(flatten)]
    pub lease: JobLease,
    /// Proves that the worker is the one that the supervisor started.
    pub token: WorkerToken,
}

/// Why the credentials of a worker cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("{CREDENTIALS_FILE_VARIABLE}: {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The text is not credentials.
    #[error("{place}: not a worker's credentials: {source}")]
    Text {
        /// The variable or the file.
        place: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl WorkerCredentials {
    /// Returns the credentials in the process's environment, or `None` if it contains none.
    ///
    /// # Errors
    /// `File`; `Text`.
    pub fn from_environment() -> Result<Option<WorkerCredentials>, CredentialsError> {
        if let Ok(text) = std::env::var(CREDENTIALS_VARIABLE) {
            return WorkerCredentials::parse(&text, CREDENTIALS_VARIABLE).map(Some);
        }
        match std::env::var_os(CREDENTIALS_FILE_VARIABLE) {
            Some(path) => WorkerCredentials::from_file(Path::new(&path)).map(Some),
            None => Ok(None),
        }
    }

    /// Reads the credentials from a file.
    ///
    /// # Errors
    /// `File`; `Text`.
    fn from_file(path: &Path) -> Result<WorkerCredentials, CredentialsError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| CredentialsError::File { path: path.to_owned(), source })?;
        WorkerCredentials::parse(&text, &path.display().to_string())
    }

    fn parse(text: &str, place: &str) -> Result<WorkerCredentials, CredentialsError> {
        serde_json::from_str(text).map_err(|source| CredentialsError::Text { place: place.to_owned(), source })
    }

    /// Returns the text for [`CREDENTIALS_VARIABLE`] or for the file of [`CREDENTIALS_FILE_VARIABLE`].
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("credentials are plain data")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_round_trip_through_a_file_and_are_not_printed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials.json");
        let lease = JobLease { job: "j".to_owned(), attempt: 2, epoch: 3, claim: "c".to_owned() };
        let address = WorkerAddress::Tcp(([127, 0, 0, 1], 8001).into());
        let credentials = WorkerCredentials { address, lease, token: WorkerToken::random() };
        std::fs::write(&path, credentials.to_json()).unwrap();
        assert_eq!(WorkerCredentials::from_file(&path).unwrap(), credentials);
        assert!(!format!("{credentials:?}").contains(&credentials.token.0));
        std::fs::write(&path, "{}").unwrap();
        let error = WorkerCredentials::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("credentials.json") && error.contains("address"), "{error}");
    }
}
