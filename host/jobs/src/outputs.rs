//! Files that jobs wrote.

use std::fs::File;
use std::io;

use saggar_store::outputs::{self, OutputFile};

use crate::{JobError, JobService};

impl JobService {
    /// Returns the files that a job has written so far, by path.
    ///
    /// # Errors
    /// `Io`.
    pub async fn list_outputs(&self, id: &str) -> Result<Vec<OutputFile>, JobError> {
        let job_dir = self.shared.jobs_dir.join(id);
        let listed = tokio::task::spawn_blocking(move || outputs::list(&job_dir)).await;
        Ok(listed.map_err(io::Error::other)??)
    }

    /// Opens a file that a job wrote, and returns it with its size in bytes; `None` if there is no file of that path.
    ///
    /// # Errors
    /// `Io`.
    pub async fn open_output(&self, id: &str, path: &str) -> Result<Option<(File, u64)>, JobError> {
        let (job_dir, path) = (self.shared.jobs_dir.join(id), path.to_owned());
        let opened = tokio::task::spawn_blocking(move || outputs::open(&job_dir, &path)).await;
        Ok(opened.map_err(io::Error::other)??)
    }
}
