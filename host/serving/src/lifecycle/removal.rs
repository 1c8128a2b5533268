//! Removal of versions and models from disk, after they have been taken out of service.

use std::sync::Arc;

use super::model_record::ReconcileCause;
use crate::error::ServingError;
use crate::lifecycle::ModelLifecycle;
use crate::model_reference::ModelReference;
use crate::model_state::Residency;

/// The result of a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedVersions {
    /// The removed versions.
    pub versions: Vec<u64>,
    /// The bytes that were freed.
    pub bytes: u64,
}

impl ModelLifecycle {
    /// Takes a version out of service and removes it.
    ///
    /// # Errors
    /// Returns `NoModel`, `VersionNotServing` if the version does not exist, `Conflict` if default requests, an alias,
    /// a traffic share or a shadow need it, and `ModelState` if it cannot be removed.
    pub async fn remove_version(
        self: &Arc<ModelLifecycle>,
        name: &str,
        version: u64,
    ) -> Result<RemovedVersions, ServingError> {
        let mut memory = self.lock_for_command(name).await?;
        self.check_version_exists(name, version)?;
        let default = self.router.default_version(name).map(|serving| serving.version);
        // A version that a user loaded explicitly can still be removed.
        let was_held = memory.desired.held.remove(&version);
        if memory.desired.required_versions().contains(&version) || default == Some(version) {
            let reason = format!(
                "default requests, an alias, a share or a shadow needs it: `saggar models promote {name} VERSION` has another \
                 version answer, `saggar models rm {name}` removes the whole model"
            );
            memory.desired.held.extend(was_held.then_some(version));
            return Err(ServingError::Conflict { what: format!("{name}@{version}"), reason });
        }
        memory.on_demand.retain(|it| *it != version);
        self.finish_command(name, &mut memory, ReconcileCause::new("UNLOADED")).await?;
        self.router.wait_until_version_drained(name, Some(version)).await;
        let (models, model) = (self.models.clone(), name.to_owned());
        let bytes = run_blocking(move || Ok(models.remove(&model, version)?)).await?;
        drop(memory);
        self.rescan().await;
        Ok(RemovedVersions { versions: vec![version], bytes })
    }

    /// Takes a model out of service and removes it with its versions and configuration.
    ///
    /// # Errors
    /// Returns `NoModel`, `Conflict` if an ensemble has it as a step, and `ModelState` if not all of it can be removed.
    pub async fn remove_model(self: &Arc<ModelLifecycle>, name: &str) -> Result<RemovedVersions, ServingError> {
        let mut memory = self.lock_for_command(name).await?;
        let is_step = |text: &str| ModelReference::parse(text).is_ok_and(|step| step.model == name);
        for status in self.router.list() {
            let mut steps = status.config.ensemble.iter().flat_map(|ensemble| &ensemble.steps);
            if status.name != name && steps.any(|step| is_step(&step.model)) {
                let reason = format!("the ensemble {} has it as a step", status.name);
                return Err(ServingError::Conflict { what: name.to_owned(), reason });
            }
        }
        // Requests must not wake it during the removal.
        memory.desired.unloaded = true;
        self.take_out_of_service(name, &mut memory, Residency::Unloaded, "UNLOADED");
        self.publish_desired_state(name, &memory);
        self.router.wait_until_version_drained(name, None).await;
        let (models, model) = (self.models.clone(), name.to_owned());
        let removed = run_blocking(move || Ok(models.remove_model(&model)?)).await;
        drop(memory);
        self.rescan().await;
        let (versions, bytes) = removed?;
        tracing::info!(model = name, versions = versions.len(), bytes, "model removed");
        Ok(RemovedVersions { versions, bytes })
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ServingError> + Send + 'static,
) -> Result<T, ServingError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ServingError::Internal { cause: format!("removing: {error}") })?
}
