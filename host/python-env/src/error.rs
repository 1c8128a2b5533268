//! Errors of Python environments.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::PYTHON_VARIABLE;

/// Why an environment cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PythonEnvError {
    /// No variable says where the user's cache is.
    #[error("neither HOME nor XDG_CACHE_HOME is set, so there is no place to install it")]
    NoCache,
    /// There is no suitable interpreter, or it cannot make environments.
    #[error("{}: {reason}", python.display())]
    Python {
        /// The interpreter.
        python: PathBuf,
        /// Its version, or its messages.
        reason: String,
    },
    /// pip could not install the packages.
    #[error("pip could not install {name}: {messages}")]
    Install {
        /// The name of the environment.
        name: String,
        /// The messages of pip.
        messages: String,
    },
    /// A file cannot be written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl PythonEnvError {
    pub(crate) fn io(path: PathBuf, source: io::Error) -> PythonEnvError {
        PythonEnvError::Io { path, source }
    }

    /// Returns what can be done about it.
    pub fn hint(&self) -> String {
        match self {
            PythonEnvError::NoCache => "set XDG_CACHE_HOME".to_owned(),
            PythonEnvError::Python { .. } => {
                format!("on Debian `apt install python3 python3-venv`; {PYTHON_VARIABLE} names another interpreter")
            }
            PythonEnvError::Install { .. } => {
                "connect this machine to a package index for the first use, or configure \
                                               one that it reaches with `pip config`"
                    .to_owned()
            }
            PythonEnvError::Io { .. } => "check the permissions and the free space of this directory".to_owned(),
        }
    }
}
