//! Commands of users to the lifecycle: load, unload, promote, roll back, aliases, traffic, shadow and configuration.
//! Each returns when it is done or has failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use saggar_store::models::VersionCompleteness;
use tokio::sync::OwnedMutexGuard;

use super::model_record::{ModelRecord, ReconcileCause};
use super::version_load::{predict_warmup_sample, read_warmup_sample};
use crate::desired_state::{DesiredState, STABLE, ShadowPolicy};
use crate::error::ServingError;
use crate::guest_threads;
use crate::lifecycle::ModelLifecycle;
use crate::model_config::{ModelConfig, SETTINGS_FILE};
use crate::model_reference::{ModelReference, VersionSelector};
use crate::model_state::{ModelStatus, Residency};
use crate::prediction::deadline::PredictionDeadline;
use crate::unserved_reason::FollowPolicy;
use crate::version_state::VersionState;

impl ModelLifecycle {
    /// Locks the model's record for one command, after a rescan of the models directory.
    pub(crate) async fn lock_for_command(
        self: &Arc<ModelLifecycle>,
        name: &str,
    ) -> Result<OwnedMutexGuard<ModelRecord>, ServingError> {
        self.synchronize_versions().await;
        // The rescan finds a version that was just published, although no file event has arrived yet.
        self.rescan().await;
        self.router.status(name)?;
        let mut memory = self.model_record(name).lock_owned().await;
        self.refresh_shared_state(name, &mut memory).await;
        Ok(memory)
    }

    /// Reconciles the model and returns its status.
    pub(crate) async fn finish_command(
        self: &Arc<ModelLifecycle>,
        name: &str,
        memory: &mut ModelRecord,
        cause: ReconcileCause,
    ) -> Result<ModelStatus, ServingError> {
        self.save_desired_state(name, memory).await?;
        self.reconcile(name, memory, cause).await;
        if memory.config.ensemble.is_none() {
            // Not awaited: a command on an ensemble can be waiting for this model.
            let lifecycle = Arc::clone(self);
            tokio::spawn(async move { lifecycle.reconcile_ensembles().await });
        }
        self.router.status(name)
    }

    /// Checks that the model exists now.
    ///
    /// # Errors
    /// Returns `NoModel`.
    pub(crate) async fn check_model_exists(self: &Arc<ModelLifecycle>, name: &str) -> Result<(), ServingError> {
        self.lock_for_command(name).await.map(drop)
    }

    /// Rescans the model, loads what should be loaded, and returns its status.
    ///
    /// # Errors
    /// Returns `NoModel`.
    pub(crate) async fn reconcile_now(
        self: &Arc<ModelLifecycle>,
        name: &str,
        reason: &'static str,
    ) -> Result<ModelStatus, ServingError> {
        let mut memory = self.lock_for_command(name).await?;
        self.finish_command(name, &mut memory, ReconcileCause::new(reason)).await
    }

    /// Loads a model, or one of its versions, which then stays loaded. Returns when it is ready.
    ///
    /// # Errors
    /// Returns `NoModel`, or `LoadFailed` with the reason. A version that was serving before continues to serve.
    pub async fn load(
        self: &Arc<ModelLifecycle>,
        name: &str,
        version: Option<u64>,
    ) -> Result<ModelStatus, ServingError> {
        let mut memory = self.lock_for_command(name).await?;
        memory.desired.unloaded = false;
        // Rejected versions are retried: the user can have fixed the cause.
        memory.refused.clear();
        memory.persisted_failures.clear();
        if let Some(version) = version {
            self.check_version_exists(name, version)?;
            memory.desired.held.insert(version);
        }
        let status = self.finish_command(name, &mut memory, ReconcileCause::new("LOADED")).await?;
        let is_up = match version {
            Some(version) => self.router.ready_version(name, version).is_some(),
            None => status.serving.is_some(),
        };
        if is_up {
            return Ok(status);
        }
        if let Some(version) = version {
            memory.desired.held.remove(&version);
            self.save_in_background(name, &memory).await;
        }
        Err(load_failed_error(&status, version))
    }

    /// Unloads a model, or one of its versions, and returns when its memory is free.
    ///
    /// # Errors
    /// Returns `NoModel`, or `Conflict` for a version that an alias, a share or default requests need.
    pub async fn unload(
        self: &Arc<ModelLifecycle>,
        name: &str,
        version: Option<u64>,
    ) -> Result<ModelStatus, ServingError> {
        let mut memory = self.lock_for_command(name).await?;
        match version {
            None => {
                memory.desired.unloaded = true;
                self.save_desired_state(name, &memory).await?;
                self.take_out_of_service(name, &mut memory, Residency::Unloaded, "UNLOADED");
                self.publish_desired_state(name, &memory);
            }
            Some(version) => {
                self.check_version_exists(name, version)?;
                memory.desired.held.remove(&version);
                memory.on_demand.retain(|it| *it != version);
                let default = self.router.default_version(name).map(|serving| serving.version);
                if memory.desired.required_versions().contains(&version) || default == Some(version) {
                    let reason = "default requests, an alias, a share or a shadow needs it".to_owned();
                    memory.desired.held.insert(version);
                    return Err(ServingError::Conflict { what: format!("{name}@{version}"), reason });
                }
                self.finish_command(name, &mut memory, ReconcileCause::new("UNLOADED")).await?;
            }
        }
        drop(memory);
        self.router.wait_until_version_drained(name, version).await;
        self.router.status(name)
    }

    /// Makes a version the default and pins it. `None` makes the default follow the newest version again. Ends a
    /// canary, and a shadow of the promoted or the replaced version.
    ///
    /// # Errors
    /// Returns `NoModel`, or `LoadFailed`, in which case nothing has changed.
    pub async fn promote(
        self: &Arc<ModelLifecycle>,
        name: &str,
        version: Option<u64>,
    ) -> Result<ModelStatus, ServingError> {
        let mut memory = self.lock_for_command(name).await?;
        self.promote_locked(name, version, &mut memory).await
    }

    /// Like [`ModelLifecycle::promote`], for a caller that has locked the model's record.
    ///
    /// # Errors
    /// Returns the errors of [`ModelLifecycle::promote`].
    pub(super) async fn promote_locked(
        self: &Arc<ModelLifecycle>,
        name: &str,
        version: Option<u64>,
        memory: &mut ModelRecord,
    ) -> Result<ModelStatus, ServingError> {
        let before = memory.desired.clone();
        memory.desired.unloaded = false;
        match version {
            Some(version) => {
                self.check_version_exists(name, version)?;
                memory.refused.remove(&version);
                memory.desired.set_alias(STABLE, version)?;
            }
            None if self.follow == FollowPolicy::Promoted => {
                // Under this policy the default never follows the newest version, so the current newest one is
                // promoted.
                if let Some(newest) = self.newest_complete(name) {
                    memory.refused.remove(&newest);
                    memory.desired.set_alias(STABLE, newest)?;
                }
            }
            None => drop(memory.desired.remove_alias(STABLE)),
        }
        let newest = || self.newest_complete(name);
        let default = self.router.default_version(name).map(|serving| serving.version);
        let concerned: Vec<u64> = version.or_else(newest).into_iter().chain(default).collect();
        memory.desired.end_canary_and_shadow(&concerned);
        let status = self.finish_command(name, memory, ReconcileCause::new("PROMOTED")).await?;
        let default = status.serving.as_ref().map(|serving| serving.version);
        if default.is_some() && version.is_none_or(|version| default == Some(version)) {
            return Ok(status);
        }
        memory.desired = before;
        self.finish_command(name, memory, ReconcileCause::new("PROMOTED")).await?;
        Err(load_failed_error(&status, version))
    }

    /// Makes the previous default version the default again and pins it. Ends a canary, and a shadow of either version.
    ///
    /// # Errors
    /// Returns `NoModel`, `Conflict` if there is no previous default, or `LoadFailed`.
    pub async fn roll_back(self: &Arc<ModelLifecycle>, name: &str) -> Result<ModelStatus, ServingError> {
        let mut memory = self.lock_for_command(name).await?;
        let there = self.scanned_versions(name);
        let default = self.router.default_version(name).map(|serving| serving.version);
        let before = memory.desired.clone();
        let former = loop {
            match memory.desired.former.pop() {
                Some(version) if there.contains_key(&version) && default != Some(version) => break version,
                Some(_) => {}
                None => {
                    memory.desired = before;
                    let reason = "no other version was the default before".to_owned();
                    return Err(ServingError::Conflict { what: name.to_owned(), reason });
                }
            }
        };
        memory.desired.set_alias(STABLE, former)?;
        let concerned: Vec<u64> = default.into_iter().chain([former]).collect();
        memory.desired.end_canary_and_shadow(&concerned);
        let status = self.finish_command(name, &mut memory, ReconcileCause::new("ROLLED_BACK")).await?;
        if status.serving.as_ref().is_some_and(|serving| serving.version == former) {
            return Ok(status);
        }
        memory.desired = before;
        self.finish_command(name, &mut memory, ReconcileCause::new("ROLLED_BACK")).await?;
        Err(load_failed_error(&status, Some(former)))
    }

    /// Points an alias at a version that is ready.
    ///
    /// # Errors
    /// Returns `NoModel`, `Conflict` if the version is not ready, or `DesiredStateError`.
    pub async fn set_alias(
        self: &Arc<ModelLifecycle>,
        name: &str,
        alias: &str,
        version: u64,
    ) -> Result<ModelStatus, ServingError> {
        let mut memory = self.lock_for_command(name).await?;
        self.check_version_ready(name, version)?;
        memory.desired.set_alias(alias, version)?;
        self.finish_command(name, &mut memory, ReconcileCause::new("PROMOTED")).await
    }

    /// Removes an alias.
    ///
    /// # Errors
    /// Returns `NoModel`, or `NoAlias` if the alias does not exist.
    pub async fn remove_alias(
        self: &Arc<ModelLifecycle>,
        name: &str,
        alias: &str,
    ) -> Result<ModelStatus, ServingError> {
        let mut memory = self.lock_for_command(name).await?;
        if !memory.desired.remove_alias(alias) {
            let hint = format!("GET /api/v1/models/{name} shows the aliases");
            return Err(ServingError::NoAlias { model: name.to_owned(), alias: alias.to_owned(), hint });
        }
        self.finish_command(name, &mut memory, ReconcileCause::new("PROMOTED")).await
    }

    /// Splits default requests among versions that are ready. An empty map sends all to the default.
    ///
    /// # Errors
    /// Returns `NoModel`, `DesiredStateError`, `NoAlias`, or `Conflict` for a version that is not ready.
    pub async fn set_traffic(
        self: &Arc<ModelLifecycle>,
        name: &str,
        traffic: BTreeMap<String, u32>,
    ) -> Result<ModelStatus, ServingError> {
        let mut memory = self.lock_for_command(name).await?;
        DesiredState::check_traffic(&traffic)?;
        for target in traffic.keys() {
            self.check_target_ready(name, target, &memory)?;
        }
        memory.desired.traffic = traffic;
        self.finish_command(name, &mut memory, ReconcileCause::new("PROMOTED")).await
    }

    /// Makes a version that is ready repeat a share of the requests. `None` ends the shadow.
    ///
    /// # Errors
    /// Returns the errors of [`ModelLifecycle::set_traffic`].
    pub async fn set_shadow(
        self: &Arc<ModelLifecycle>,
        name: &str,
        shadow: Option<ShadowPolicy>,
    ) -> Result<ModelStatus, ServingError> {
        let mut memory = self.lock_for_command(name).await?;
        if let Some(shadow) = &shadow {
            if !(1..=100).contains(&shadow.percent) {
                return Err(ServingError::ShadowPercent { percent: shadow.percent });
            }
            self.check_target_ready(name, &shadow.to, &memory)?;
        }
        memory.desired.shadow = shadow;
        self.finish_command(name, &mut memory, ReconcileCause::new("PROMOTED")).await
    }

    /// Loads the model if it is asleep, and predicts its warm-up samples.
    ///
    /// # Errors
    /// Returns `NoModel`, `NotReady`, or `LoadFailed` with the error of a sample.
    pub async fn warm_up(self: &Arc<ModelLifecycle>, name: &str) -> Result<ModelStatus, ServingError> {
        let until = PredictionDeadline::starting_at(Instant::now(), crate::limits::DEADLINE_MAX).until();
        let lease = self.router.lease(Some(&ModelReference::default_version_of(name)), until).await?;
        let samples = self.router.status(name)?.config.warmup;
        let (models, model, serving) = (self.models.clone(), name.to_owned(), Arc::clone(lease.live_version()));
        let decode = self.decode_sample;
        let warm = move || {
            samples.iter().try_for_each(|it| {
                let bytes = read_warmup_sample(&models, &model, it)?;
                predict_warmup_sample(serving.predictor(), decode, &bytes, serving.policy().deadline)
            })
        };
        let warmed = guest_threads::spawn_and_wait(warm).await;
        let warmed = warmed.map_err(|error| ServingError::Internal { cause: error.to_string() })?;
        warmed.map_err(|reason| ServingError::LoadFailed { model: name.to_owned(), version: None, reason })?;
        self.router.status(name)
    }

    /// Replaces a model's configuration.
    ///
    /// # Errors
    /// Returns `NoModel`, `ModelConfigError`, or `ModelState` if it cannot be saved.
    pub async fn configure(self: &Arc<ModelLifecycle>, name: &str, text: &[u8]) -> Result<ModelStatus, ServingError> {
        let settings = tracing::warn_span!("configure", model = name).in_scope(|| ModelConfig::parse(text))?;
        let mut memory = self.lock_for_command(name).await?;
        let (models, model) = (self.models.clone(), name.to_owned());
        let text = serde_json::to_vec_pretty(&settings).unwrap_or_default();
        let written = tokio::task::spawn_blocking(move || models.write_note(&model, SETTINGS_FILE, &text)).await;
        written.map_err(|error| ServingError::Internal { cause: error.to_string() })??;
        let cause = ReconcileCause { wakes: false, ..ReconcileCause::new("CONFIGURED") };
        self.finish_command(name, &mut memory, cause).await
    }

    fn newest_complete(&self, name: &str) -> Option<u64> {
        let versions = self.scanned_versions(name);
        let mut whole =
            versions.iter().rev().filter(|(_, on_disk)| on_disk.found.state == VersionCompleteness::Complete);
        whole.next().map(|(version, _)| *version)
    }

    /// # Errors
    /// Returns `VersionNotServing` if the version's files do not exist.
    pub(crate) fn check_version_exists(&self, name: &str, version: u64) -> Result<(), ServingError> {
        if self.scanned_versions(name).contains_key(&version) {
            return Ok(());
        }
        let serving = self.router.default_version(name).map(|serving| serving.version);
        Err(ServingError::VersionNotServing { model: name.to_owned(), version, state: None, serving })
    }

    /// # Errors
    /// Returns `Conflict`, or `VersionNotServing` if the version does not exist.
    fn check_version_ready(&self, name: &str, version: u64) -> Result<(), ServingError> {
        if self.router.ready_version(name, version).is_some() {
            return Ok(());
        }
        self.check_version_exists(name, version)?;
        let status = self.router.status(name)?;
        let state = status.versions.iter().find(|it| it.version == version).map_or("UNLOADED", |it| it.state.name());
        let reason = format!("it is {state}, and must be READY: POST /api/v1/models/{name}/load first");
        Err(ServingError::Conflict { what: format!("{name}@{version}"), reason })
    }

    /// Checks that an alias or a version refers to a version that is ready.
    fn check_target_ready(&self, name: &str, target: &str, memory: &ModelRecord) -> Result<(), ServingError> {
        let default = self.router.default_version(name).map(|serving| serving.version);
        match (memory.desired.resolve_version(target, default), VersionSelector::parse(target)?) {
            (Some(version), _) => self.check_version_ready(name, version),
            (None, which) => {
                let hint = format!("PUT /api/v1/models/{name}/aliases/{which} sets it");
                Err(ServingError::NoAlias { model: name.to_owned(), alias: which.to_string(), hint })
            }
        }
    }
}

/// Returns the error with the reason for which a version was not loaded.
fn load_failed_error(status: &ModelStatus, version: Option<u64>) -> ServingError {
    let tried = status.versions.iter().rev();
    let tried = tried.filter(|it| version.is_none_or(|version| it.version == version));
    let reason = tried
        .map(|it| match it.state {
            VersionState::Failed => it.reason.clone(),
            _ if it.reason.is_empty() => format!("it is {}", it.state.name()),
            _ => it.reason.clone(),
        })
        .next();
    let reason = reason.unwrap_or_else(|| "it has no version".to_owned());
    ServingError::LoadFailed { model: status.name.clone(), version, reason }
}
