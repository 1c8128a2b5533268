//! Publications that the records of several servers decide about.
//!
//! A job's worker sends the files of a version, asks its [`PublicationFence`], and then makes the version visible. If it ends
//! between the two, a server makes the version visible.

use std::path::PathBuf;
use std::sync::Arc;

use super::ModelRegistry;
use crate::error::{ModelError, StoreError};
use crate::records::{PendingPublication, PublicationRecords};
use crate::state_dir::StateDir;
use crate::versions::publication_fence::PublicationFence;

impl ModelRegistry {
    /// Returns the registry of an installation as [`of_home`](Self::of_home) does, which asks `fence` before a version becomes
    /// visible, if there is one.
    pub fn of_home_fenced(
        home: &StateDir,
        dir: impl Into<PathBuf>,
        fence: Option<Arc<dyn PublicationFence>>,
    ) -> ModelRegistry {
        match home.bucket() {
            Some(bucket) => ModelRegistry::of_bucket(bucket.clone(), dir.into(), fence),
            None => ModelRegistry::of_directory(dir.into(), fence),
        }
    }

    /// Makes versions visible whose publication was registered by attempts that have ended since. Returns them.
    ///
    /// # Errors
    /// Returns `Records` if the records cannot be reached; `Store`.
    pub fn complete_publications(
        &self,
        records: &dyn PublicationRecords,
    ) -> Result<Vec<(String, u64)>, Box<dyn std::error::Error + Send + Sync>> {
        let mut completed = Vec::new();
        for publication in records.unfinished_publications()? {
            let renumber = |publication: &PendingPublication, version| {
                let renumbered = records.renumber_publication(publication, version);
                renumbered.map_err(|error| StoreError::io(&publication.model)(std::io::Error::other(error)))
            };
            // Without a bucket, the files of an attempt that has ended are not known.
            let version = match &self.mirror {
                Some(mirror) => mirror.complete_publication(&publication, &renumber).map_err(ModelError::from)?,
                None => None,
            };
            let PendingPublication { model, version: last, .. } = publication;
            records.confirm_publication(&model, version.unwrap_or(last))?;
            completed.extend(version.map(|version| (model, version)));
        }
        Ok(completed)
    }
}
