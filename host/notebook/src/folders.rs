//! The folders of a notebook among the files of its job.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::client_files::write_client;
use crate::error::NotebookError;
use crate::lab_settings::write_lab_settings;

/// The folders of one notebook. They stay between the attempts of its job.
#[derive(Clone, Debug)]
pub struct NotebookFolders {
    root: PathBuf,
}

impl NotebookFolders {
    /// Returns the folders of the job with these files, which may not exist yet.
    pub fn new(job_directory: &Path) -> NotebookFolders {
        NotebookFolders { root: job_directory.join("notebook") }
    }

    /// Creates the folders, readable only for the owner, and writes the Python client and JupyterLab's settings. Removes
    /// the socket of an earlier attempt.
    ///
    /// # Errors
    /// `Io`.
    pub fn create(&self) -> Result<(), NotebookError> {
        let (client, settings) = (self.client(), self.settings());
        let written = [self.output(), self.home(), self.temporary(), self.run(), self.data()];
        for folder in written.iter().chain([&client, &settings]) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(NotebookError::io(folder))?;
        }
        write_client(&client).map_err(NotebookError::io(&client))?;
        write_lab_settings(&settings).map_err(NotebookError::io(&settings))?;
        match fs::remove_file(self.socket()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(NotebookError::io(self.socket())(error)),
            Err(_) | Ok(()) => Ok(()),
        }
    }

    /// The folder of documents and of what becomes the job's output.
    pub fn output(&self) -> PathBuf {
        self.root.join("output")
    }

    /// The folder of mounted datasets, one folder for each.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// The file with the notebook's token.
    pub fn token_file(&self) -> PathBuf {
        self.root.join("token")
    }

    /// The Unix socket of JupyterLab.
    pub fn socket(&self) -> PathBuf {
        self.run().join(SOCKET_NAME)
    }

    /// The home directory of the notebook's user, with its settings and packages.
    pub(crate) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    pub(crate) fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    pub(crate) fn client(&self) -> PathBuf {
        self.root.join("client")
    }

    /// JupyterLab's settings directory.
    pub(crate) fn settings(&self) -> PathBuf {
        self.root.join("settings")
    }
}

/// The name of the socket in its folder.
pub(crate) const SOCKET_NAME: &str = "jupyter.sock";
