//! Files that jobs wrote, and items that they logged.

use std::fs::File;
use std::io;
use std::sync::Arc;

use saggar_store::outputs::OutputFile;
use saggar_store::{LoggedKey, StoredItem};

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

    /// Returns the items that a job has logged so far, sorted by key.
    ///
    /// # Errors
    /// `Io`.
    pub async fn list_logged_items(&self, id: &str) -> Result<Vec<StoredItem>, JobError> {
        let (files, id) = (Arc::clone(&self.shared.job_files), id.to_owned());
        let listed = tokio::task::spawn_blocking(move || files.list_logged_items(&id)).await;
        Ok(listed.map_err(io::Error::other)??)
    }

    /// Returns the files of logged items, in the order of the keys; `None` for each that does not exist.
    ///
    /// # Errors
    /// `Io`.
    pub async fn read_logged_items(&self, id: &str, keys: Vec<LoggedKey>) -> Result<Vec<Option<Vec<u8>>>, JobError> {
        let (files, id) = (Arc::clone(&self.shared.job_files), id.to_owned());
        let read = move || keys.iter().map(|key| files.read_logged_item(&id, key)).collect::<io::Result<_>>();
        Ok(tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??)
    }
}
