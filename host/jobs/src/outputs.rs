//! Files that jobs wrote.

use std::fs::File;
use std::io;
use std::sync::Arc;

use saggar_store::outputs::OutputFile;

use crate::{JobError, JobService};

impl JobService {
    /// Returns the files that a job has written so far, by path.
    ///
    /// # Errors
    /// `Io`.
    pub async fn list_outputs(&self, id: &str) -> Result<Vec<OutputFile>, JobError> {
        let (files, id) = (Arc::clone(&self.shared.job_files), id.to_owned());
        let listed = tokio::task::spawn_blocking(move || files.list_outputs(&id)).await;
        Ok(listed.map_err(io::Error::other)??)
    }

    /// Opens a file that a job wrote, and returns it with its size in bytes; `None` if there is no file of that path.
    ///
    /// # Errors
    /// `Io`.
    pub async fn open_output(&self, id: &str, path: &str) -> Result<Option<(File, u64)>, JobError> {
        let (files, id, path) = (Arc::clone(&self.shared.job_files), id.to_owned(), path.to_owned());
        let opened = tokio::task::spawn_blocking(move || files.open_output(&id, &path)).await;
        Ok(opened.map_err(io::Error::other)??)
    }
}
