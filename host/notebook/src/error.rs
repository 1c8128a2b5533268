//! Errors of notebooks.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use saggar_python_env::PythonEnvError;
use thiserror::Error;

/// Why a notebook does not run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NotebookError {
    /// The environment could not be installed.
    #[error("JupyterLab could not be installed: {source}; {}", source.hint())]
    Environment {
        /// What failed.
        source: PythonEnvError,
    },
    /// There is no sandbox on this machine.
    #[error(
        "notebooks need bubblewrap as their sandbox: {reason}; on Debian `apt install bubblewrap`, and unprivileged user \
         namespaces must be allowed"
    )]
    Sandbox {
        /// The message of bubblewrap, or the error of its start.
        reason: String,
    },
    /// A file of the notebook cannot be written or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// JupyterLab ended.
    #[error("JupyterLab ended ({status}); its messages are above in the log")]
    Ended {
        /// How it ended.
        status: ExitStatus,
    },
    /// JupyterLab does not answer.
    #[error("JupyterLab did not answer for {} s: {reason}", waited.as_secs())]
    Silent {
        /// How long it was waited for.
        waited: Duration,
        /// The error of the last request.
        reason: String,
    },
    /// A response of JupyterLab is not what its interface promises.
    #[error("JupyterLab answered {path} with {reason}")]
    Response {
        /// The path of the request.
        path: String,
        /// The status, or what is wrong with the body.
        reason: String,
    },
}

impl NotebookError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> NotebookError {
        let path = path.into();
        |source| NotebookError::Io { path, source }
    }
}
