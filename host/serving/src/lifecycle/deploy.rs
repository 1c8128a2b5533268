//! Deployments by programs: a promotion behind the condition of the model's configuration, which a person's promotion
//! overrides.

use std::sync::Arc;

use crate::desired_state::STABLE;
use crate::error::ServingError;
use crate::lifecycle::ModelLifecycle;
use crate::model_state::ModelStatus;

impl ModelLifecycle {
    /// Makes a version the default and pins it if it meets the model's condition to be promoted. If it is the pinned
    /// default already, nothing changes, so a deployment can be repeated.
    ///
    /// # Errors
    /// Returns `Conflict` with the reason if the condition is not met; `NoModel`, `VersionNotServing` if the version does
    /// not exist, and `LoadFailed`. Nothing has changed then.
    pub async fn deploy(self: &Arc<ModelLifecycle>, name: &str, version: u64) -> Result<ModelStatus, ServingError> {
        let mut memory = self.lock_for_command(name).await?;
        self.check_version_exists(name, version)?;
        let default = self.router.default_version(name).map(|serving| serving.version);
        if default == Some(version) && memory.desired.aliases.get(STABLE) == Some(&version) {
            return self.router.status(name);
        }
        let versions = self.scanned_versions(name);
        if let Some(reason) = self.refusal_reason(version, &versions, &memory) {
            return Err(ServingError::Conflict { what: format!("{name}@{version}"), reason });
        }
        self.promote_locked(name, Some(version), &mut memory).await
    }
}
