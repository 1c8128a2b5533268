//! Errors of Python environments.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::PYTHON_VARIABLE;
use crate::pip_messages::InstallFailure;

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
        /// The last messages of pip.
        messages: String,
        /// What they say about the cause.
        failure: InstallFailure,
    },
    /// The file system of the cache is full.
    #[error("{} has no space left for {name}: {messages}", directory.display())]
    NoSpace {
        /// The directory of environments.
        directory: PathBuf,
        /// The name of the environment.
        name: String,
        /// The last messages of venv or pip.
        messages: String,
    },
    /// The installation was stopped, as its caller asked.
    #[error("the installation was stopped")]
    Stopped,
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
            PythonEnvError::Install { failure: InstallFailure::NoIndex, .. } => {
                "the package index is not reached or has no such package: connect this machine to one for the first use, or \
                 configure one that it reaches with `pip config set global.index-url URL`"
                    .to_owned()
            }
            PythonEnvError::Install { failure: InstallFailure::NoVersion, .. } => format!(
                "the package index lacks this version, or has none for this Python: configure a complete index with `pip \
                 config set global.index-url URL`, or name another Python with {PYTHON_VARIABLE}"
            ),
            PythonEnvError::Install { failure: InstallFailure::Other, .. } => {
                "start again when the cause is removed; `pip config list` prints the settings that were used".to_owned()
            }
            PythonEnvError::NoSpace { .. } => {
                "free space there, or set XDG_CACHE_HOME to a directory with space".to_owned()
            }
            PythonEnvError::Stopped => "start again to install it".to_owned(),
            PythonEnvError::Io { .. } => "check the permissions and the free space of this directory".to_owned(),
        }
    }
}
