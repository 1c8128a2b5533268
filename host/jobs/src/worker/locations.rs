//! Where a worker finds and stores data: the arguments of `saggar worker attempt`.

use std::ffi::OsString;
use std::path::PathBuf;

use saggar_store::{BlockingObjects, ObjectStorage, StateDir, StoreError};
use tokio::runtime::Handle;

/// Where a worker finds and stores data.
#[derive(Clone, Debug)]
pub struct WorkerLocations {
    /// The state directory that the worker opens.
    pub home: PathBuf,
    /// The directory of model versions that the worker publishes to.
    pub models: PathBuf,
    /// Maximum bytes of everything that is stored; `None` for no limit.
    pub storage_quota: Option<u64>,
    /// The address of the bucket of plugins, checkpoints, datasets, models and files of jobs; `None` for files of the state directory.
    pub objects: Option<String>,
}

impl WorkerLocations {
    /// Returns the arguments of `saggar worker attempt`.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> =
            vec!["--home".into(), self.home.clone().into(), "--models".into(), self.models.clone().into()];
        if let Some(quota) = self.storage_quota {
            arguments.extend(["--storage-quota".into(), quota.to_string().into()]);
        }
        if let Some(objects) = &self.objects {
            arguments.extend(["--objects".into(), objects.into()]);
        }
        arguments
    }

    /// Opens the state directory, with the bucket if the server uses one.
    pub(super) fn open_home(&self, runtime: &Handle) -> Result<StateDir, StoreError> {
        let home = StateDir::open(&self.home)?;
        let Some(address) = &self.objects else { return Ok(home) };
        Ok(home.with_bucket(BlockingObjects::new(ObjectStorage::open(address)?, runtime.clone())))
    }

    /// Returns the store of plugins and checkpoints. The server has checked it.
    pub(super) fn open_objects(&self, home: &StateDir) -> Result<ObjectStorage, StoreError> {
        match home.bucket() {
            Some(bucket) => Ok(bucket.storage().clone()),
            None => ObjectStorage::local(&home.objects()),
        }
    }
}
