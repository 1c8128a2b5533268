//! Removing versions and models from the disk, once nothing serves from them.

use std::sync::Arc;

use super::lifecycle::{Cause, Lifecycle};
use super::state::Rest;
use crate::error::ApiError;
use crate::predict::reference::Reference;

/// What was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    /// The versions.
    pub(crate) versions: Vec<u64>,
    /// The bytes that they had.
    pub(crate) bytes: u64,
}

impl Lifecycle {
    /// Takes a version out of service and removes it.
    ///
    /// # Errors
    /// `NoModel`; `VersionNotServing` where there is no such version; `Conflict` where default requests, an alias, a share or a
    /// shadow needs it; `Model` where it cannot be removed.
    pub(crate) async fn remove_version(self: &Arc<Lifecycle>, name: &str, version: u64) -> Result<Removed, ApiError> {
        let mut memory = self.begin(name).await?;
        self.known(name, version)?;
        let default = self.router.serving(name).map(|serving| serving.version);
        // That somebody had it loaded keeps nobody from removing it.
        let was_held = memory.plan.held.remove(&version);
        if memory.plan.needed().contains(&version) || default == Some(version) {
            let reason = format!(
                "default requests, an alias, a share or a shadow needs it: `saggar models promote {name} VERSION` has another \
                 version answer, `saggar models rm {name}` removes the whole model"
            );
            memory.plan.held.extend(was_held.then_some(version));
            return Err(ApiError::Conflict { what: format!("{name}@{version}"), reason });
        }
        memory.on_demand.retain(|it| *it != version);
        self.done(name, &mut memory, Cause::new("UNLOADED")).await?;
        self.router.drained_of(name, Some(version)).await;
        let (models, model) = (self.models.clone(), name.to_owned());
        let bytes = blocking(move || Ok(models.remove(&model, version)?)).await?;
        drop(memory);
        self.scan().await;
        Ok(Removed { versions: vec![version], bytes })
    }

    /// Takes a model out of service and removes it with its versions and settings.
    ///
    /// # Errors
    /// `NoModel`; `Conflict` where an ensemble has it as a step; `Model` where not all of it can be removed.
    pub(crate) async fn remove_model(self: &Arc<Lifecycle>, name: &str) -> Result<Removed, ApiError> {
        let mut memory = self.begin(name).await?;
        let is_step = |text: &str| Reference::parse(text).is_ok_and(|step| step.model == name);
        for status in self.router.list() {
            let mut steps = status.settings.ensemble.iter().flat_map(|ensemble| &ensemble.steps);
            if status.name != name && steps.any(|step| is_step(&step.model)) {
                let reason = format!("the ensemble {} has it as a step", status.name);
                return Err(ApiError::Conflict { what: name.to_owned(), reason });
            }
        }
        // Requests must not wake it while its files go.
        memory.plan.unloaded = true;
        self.put_down(name, &mut memory, Rest::Unloaded, "UNLOADED");
        self.instruct(name, &memory);
        self.router.drained_of(name, None).await;
        let (models, model) = (self.models.clone(), name.to_owned());
        let removed = blocking(move || Ok(models.remove_model(&model)?)).await;
        drop(memory);
        self.scan().await;
        let (versions, bytes) = removed?;
        tracing::info!(model = name, versions = versions.len(), bytes, "model removed");
        Ok(Removed { versions, bytes })
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError::Internal { cause: format!("removing: {error}") })?
}
