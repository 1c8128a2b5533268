//! The copies that this machine has of the models in a bucket.

use super::{ModelRegistry, check_name, check_sizes, verify};
use crate::error::ModelError;
use crate::versions::mirrored::MirrorChanges;

impl ModelRegistry {
    /// Returns whether the models are in a bucket, so that this machine has copies.
    pub fn is_mirrored(&self) -> bool {
        self.mirror.is_some()
    }

    /// Makes the copies of this machine equal to the versions in the bucket, and publishes versions that were copied into the
    /// directory by hand. Does nothing without a bucket. Blocks while versions are fetched.
    ///
    /// # Errors
    /// Returns `Store` if the bucket cannot be listed.
    pub fn synchronize(&self) -> Result<MirrorChanges, ModelError> {
        let Some(mirror) = &self.mirror else { return Ok(MirrorChanges::default()) };
        // Reading every byte of a version that is being copied is left until its files have their sizes.
        Ok(mirror.synchronize(&|dir| check_sizes(dir).is_ok() && verify(dir).is_ok())?)
    }

    /// Fetches a version, or the newest one, if another server has just published it. Does nothing without a bucket.
    ///
    /// # Errors
    /// Returns `BadName`; `Store` if the bucket does not answer.
    pub fn fetch(&self, model: &str, version: Option<u64>) -> Result<(), ModelError> {
        check_name(model)?;
        if !self.is_mirrored() {
            return Ok(());
        }
        let newest = || Ok::<_, ModelError>(self.versions.versions(model)?.last().copied());
        match version.map_or_else(newest, |version| Ok(Some(version)))? {
            Some(version) => self.version_dir(model, version).map(drop),
            None => Ok(()),
        }
    }

    /// Returns whether a version that this machine does not have was removed. With a bucket, this machine may only not have
    /// fetched it yet.
    ///
    /// # Errors
    /// Returns `BadName`.
    pub fn is_removed(&self, model: &str, version: u64) -> Result<bool, ModelError> {
        check_name(model)?;
        let is_here = self.dir.join(model).join(version.to_string()).is_dir();
        Ok(!is_here && self.mirror.as_ref().is_none_or(|mirror| mirror.is_gone(model, version)))
    }
}
