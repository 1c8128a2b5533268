//! What users tell the lifecycle: load, unload, promote, roll back, aliases, shares, shadow, settings. Each returns when it
//! is done, or says why it cannot be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use saggar_store::models::FoundState;
use tokio::sync::OwnedMutexGuard;

use super::bring_up::{predict_sample, sample};
use super::guest_threads;
use super::idle::Follow;
use super::lifecycle::{Cause, Lifecycle, Memory};
use super::plan::{Plan, STABLE, ShadowPlan};
use super::settings::{SETTINGS_FILE, Settings};
use super::state::{ModelStatus, Rest};
use super::version::VersionState;
use crate::error::ApiError;
use crate::predict::call::Deadline;
use crate::predict::reference::{Reference, Which};

impl Lifecycle {
    /// The model's memory, for this command alone, with a plan that was read.
    pub(super) async fn begin(self: &Arc<Lifecycle>, name: &str) -> Result<OwnedMutexGuard<Memory>, ApiError> {
        // What was published a moment ago counts, although no event has told of it yet.
        self.scan().await;
        self.router.status(name)?;
        Ok(self.entry(name).lock_owned().await)
    }

    /// Settles the model, and shows how it stands.
    pub(super) async fn done(
        self: &Arc<Lifecycle>,
        name: &str,
        memory: &mut Memory,
        cause: Cause,
    ) -> Result<ModelStatus, ApiError> {
        self.save_plan(name, memory).await;
        self.settle(name, memory, cause).await;
        if memory.settings.ensemble.is_none() {
            // Not waited for: ensembles wait for this model where they are being changed themselves.
            let lifecycle = Arc::clone(self);
            tokio::spawn(async move { lifecycle.connect_ensembles().await });
        }
        self.router.status(name)
    }

    /// Whether there is such a model, now.
    ///
    /// # Errors
    /// `NoModel`.
    pub(super) async fn known_model(self: &Arc<Lifecycle>, name: &str) -> Result<(), ApiError> {
        self.begin(name).await.map(drop)
    }

    /// Looks at the model anew, brings up what should be, and shows how it stands then.
    ///
    /// # Errors
    /// `NoModel`.
    pub(super) async fn settled(
        self: &Arc<Lifecycle>,
        name: &str,
        reason: &'static str,
    ) -> Result<ModelStatus, ApiError> {
        let mut memory = self.begin(name).await?;
        self.done(name, &mut memory, Cause::new(reason)).await
    }

    /// Loads a model, or one of its versions, which then stays loaded. Returns when it is ready.
    ///
    /// # Errors
    /// `NoModel`; `LoadFailed` with the reason; then what served before serves on.
    pub async fn load(self: &Arc<Lifecycle>, name: &str, version: Option<u64>) -> Result<ModelStatus, ApiError> {
        let mut memory = self.begin(name).await?;
        memory.plan.unloaded = false;
        // What was refused is tried again: a user who asks may know more.
        memory.refused.clear();
        memory.recalled.clear();
        if let Some(version) = version {
            self.known(name, version)?;
            memory.plan.held.insert(version);
        }
        let status = self.done(name, &mut memory, Cause::new("LOADED")).await?;
        let is_up = match version {
            Some(version) => self.router.ready(name, version).is_some(),
            None => status.serving.is_some(),
        };
        if is_up {
            return Ok(status);
        }
        if let Some(version) = version {
            memory.plan.held.remove(&version);
            self.save_plan(name, &memory).await;
        }
        Err(failed(&status, version))
    }

    /// Unloads a model, or one of its versions, and returns when all that it held is free.
    ///
    /// # Errors
    /// `NoModel`; `InUse` for a version that an alias, a share or default requests need.
    pub async fn unload(self: &Arc<Lifecycle>, name: &str, version: Option<u64>) -> Result<ModelStatus, ApiError> {
        let mut memory = self.begin(name).await?;
        match version {
            None => {
                memory.plan.unloaded = true;
                self.save_plan(name, &memory).await;
                self.put_down(name, &mut memory, Rest::Unloaded, "UNLOADED");
                self.instruct(name, &memory);
            }
            Some(version) => {
                self.known(name, version)?;
                memory.plan.held.remove(&version);
                memory.on_demand.retain(|it| *it != version);
                let default = self.router.serving(name).map(|serving| serving.version);
                if memory.plan.needed().contains(&version) || default == Some(version) {
                    let reason = "default requests, an alias, a share or a shadow needs it".to_owned();
                    memory.plan.held.insert(version);
                    return Err(ApiError::Conflict { what: format!("{name}@{version}"), reason });
                }
                self.done(name, &mut memory, Cause::new("UNLOADED")).await?;
            }
        }
        drop(memory);
        self.router.drained_of(name, version).await;
        self.router.status(name)
    }

    /// Makes a version the default, and keeps it so; none has the default follow the newest version again. Ends a canary,
    /// and a shadow of the version that it promotes or takes the place of.
    ///
    /// # Errors
    /// `NoModel`; `LoadFailed`, and then nothing has changed.
    pub async fn promote(self: &Arc<Lifecycle>, name: &str, version: Option<u64>) -> Result<ModelStatus, ApiError> {
        let mut memory = self.begin(name).await?;
        let before = memory.plan.clone();
        memory.plan.unloaded = false;
        match version {
            Some(version) => {
                self.known(name, version)?;
                memory.refused.remove(&version);
                memory.plan.set_alias(STABLE, version)?;
            }
            None if self.follow == Follow::Promoted => {
                // Nothing follows the newest version: the one that is it now is promoted.
                if let Some(newest) = self.newest_whole(name) {
                    memory.refused.remove(&newest);
                    memory.plan.set_alias(STABLE, newest)?;
                }
            }
            None => drop(memory.plan.remove_alias(STABLE)),
        }
        let newest = || self.newest_whole(name);
        let default = self.router.serving(name).map(|serving| serving.version);
        let concerned: Vec<u64> = version.or_else(newest).into_iter().chain(default).collect();
        memory.plan.end_trials(&concerned);
        let status = self.done(name, &mut memory, Cause::new("PROMOTED")).await?;
        let default = status.serving.as_ref().map(|serving| serving.version);
        if default.is_some() && version.is_none_or(|version| default == Some(version)) {
            return Ok(status);
        }
        memory.plan = before;
        self.done(name, &mut memory, Cause::new("PROMOTED")).await?;
        Err(failed(&status, version))
    }

    /// Makes the version the default that was it before, and keeps it so. Ends a canary, and a shadow of either version.
    ///
    /// # Errors
    /// `NoModel`; `Conflict` where there was none; `LoadFailed`.
    pub async fn roll_back(self: &Arc<Lifecycle>, name: &str) -> Result<ModelStatus, ApiError> {
        let mut memory = self.begin(name).await?;
        let there = self.versions(name);
        let default = self.router.serving(name).map(|serving| serving.version);
        let before = memory.plan.clone();
        let former = loop {
            match memory.plan.former.pop() {
                Some(version) if there.contains_key(&version) && default != Some(version) => break version,
                Some(_) => {}
                None => {
                    memory.plan = before;
                    let reason = "no other version was the default before".to_owned();
                    return Err(ApiError::Conflict { what: name.to_owned(), reason });
                }
            }
        };
        memory.plan.set_alias(STABLE, former)?;
        let concerned: Vec<u64> = default.into_iter().chain([former]).collect();
        memory.plan.end_trials(&concerned);
        let status = self.done(name, &mut memory, Cause::new("ROLLED_BACK")).await?;
        if status.serving.as_ref().is_some_and(|serving| serving.version == former) {
            return Ok(status);
        }
        memory.plan = before;
        self.done(name, &mut memory, Cause::new("ROLLED_BACK")).await?;
        Err(failed(&status, Some(former)))
    }

    /// Points an alias at a version that is ready.
    ///
    /// # Errors
    /// `NoModel`; `Conflict` where the version is not ready; `BadPlan`.
    pub async fn set_alias(
        self: &Arc<Lifecycle>,
        name: &str,
        alias: &str,
        version: u64,
    ) -> Result<ModelStatus, ApiError> {
        let mut memory = self.begin(name).await?;
        self.is_ready(name, version)?;
        memory.plan.set_alias(alias, version)?;
        self.done(name, &mut memory, Cause::new("PROMOTED")).await
    }

    /// Takes an alias away.
    ///
    /// # Errors
    /// `NoModel`; `NotFound` where there is no such alias.
    pub async fn remove_alias(self: &Arc<Lifecycle>, name: &str, alias: &str) -> Result<ModelStatus, ApiError> {
        let mut memory = self.begin(name).await?;
        if !memory.plan.remove_alias(alias) {
            let hint = format!("GET /api/v1/models/{name} shows the aliases");
            return Err(ApiError::NotFound { kind: "alias", name: format!("{name}@{alias}"), hint });
        }
        self.done(name, &mut memory, Cause::new("PROMOTED")).await
    }

    /// Shares default requests out among versions that are ready; no shares send all to the default.
    ///
    /// # Errors
    /// `NoModel`; `BadPlan`; `NotFound` for an alias; `Conflict` for a version that is not ready.
    pub async fn set_traffic(
        self: &Arc<Lifecycle>,
        name: &str,
        traffic: BTreeMap<String, u32>,
    ) -> Result<ModelStatus, ApiError> {
        let mut memory = self.begin(name).await?;
        Plan::check_traffic(&traffic)?;
        for target in traffic.keys() {
            self.stands_for(name, target, &memory)?;
        }
        memory.plan.traffic = traffic;
        self.done(name, &mut memory, Cause::new("PROMOTED")).await
    }

    /// Has a version that is ready repeat a share of the requests; none ends it.
    ///
    /// # Errors
    /// As [`Lifecycle::set_traffic`].
    pub async fn set_shadow(
        self: &Arc<Lifecycle>,
        name: &str,
        shadow: Option<ShadowPlan>,
    ) -> Result<ModelStatus, ApiError> {
        let mut memory = self.begin(name).await?;
        if let Some(shadow) = &shadow {
            if !(1..=100).contains(&shadow.percent) {
                let (name, got) = ("percent", shadow.percent.to_string());
                return Err(ApiError::Parameter { name, expected: "1 to 100", got });
            }
            self.stands_for(name, &shadow.to, &memory)?;
        }
        memory.plan.shadow = shadow;
        self.done(name, &mut memory, Cause::new("PROMOTED")).await
    }

    /// Brings the model up where it sleeps, and predicts its warm-up samples.
    ///
    /// # Errors
    /// `NoModel`; `NotReady`; `LoadFailed` with what a sample failed with.
    pub async fn warm(self: &Arc<Lifecycle>, name: &str) -> Result<ModelStatus, ApiError> {
        let until = Deadline::within(Instant::now(), crate::limits::DEADLINE_MAX).until();
        let lease = self.router.lease(Some(&Reference::to(name)), until).await?;
        let samples = self.router.status(name)?.settings.warmup;
        let (models, model, serving) = (self.models.clone(), name.to_owned(), Arc::clone(lease.serving()));
        let warm = move || {
            samples.iter().try_for_each(|it| {
                let bytes = sample(&models, &model, it)?;
                predict_sample(serving.predictor(), &bytes, serving.terms().deadline)
            })
        };
        let warmed = guest_threads::blocking(warm).await;
        let warmed = warmed.map_err(|error| ApiError::Internal { cause: error.to_string() })?;
        warmed.map_err(|reason| ApiError::LoadFailed { model: name.to_owned(), version: None, reason })?;
        self.router.status(name)
    }

    /// Replaces how a model is served.
    ///
    /// # Errors
    /// `NoModel`; `BadSettings`; `Model` where it cannot be written down.
    pub async fn configure(self: &Arc<Lifecycle>, name: &str, text: &[u8]) -> Result<ModelStatus, ApiError> {
        let settings = Settings::parse(text)?;
        let mut memory = self.begin(name).await?;
        let (models, model) = (self.models.clone(), name.to_owned());
        let text = serde_json::to_vec_pretty(&settings).unwrap_or_default();
        let written = tokio::task::spawn_blocking(move || models.write_note(&model, SETTINGS_FILE, &text)).await;
        written.map_err(|error| ApiError::Internal { cause: error.to_string() })??;
        let cause = Cause { wakes: false, ..Cause::new("CONFIGURED") };
        self.done(name, &mut memory, cause).await
    }

    fn newest_whole(&self, name: &str) -> Option<u64> {
        let versions = self.versions(name);
        let mut whole = versions.iter().rev().filter(|(_, on_disk)| on_disk.found.state == FoundState::Complete);
        whole.next().map(|(version, _)| *version)
    }

    /// # Errors
    /// `VersionNotServing` where there are no such files.
    pub(super) fn known(&self, name: &str, version: u64) -> Result<(), ApiError> {
        if self.versions(name).contains_key(&version) {
            return Ok(());
        }
        let serving = self.router.serving(name).map(|serving| serving.version);
        Err(ApiError::VersionNotServing { model: name.to_owned(), version, state: "unknown", serving })
    }

    /// # Errors
    /// `Conflict`; `VersionNotServing` where there is no such version.
    fn is_ready(&self, name: &str, version: u64) -> Result<(), ApiError> {
        if self.router.ready(name, version).is_some() {
            return Ok(());
        }
        self.known(name, version)?;
        let status = self.router.status(name)?;
        let state = status.versions.iter().find(|it| it.version == version).map_or("UNLOADED", |it| it.state.name());
        let reason = format!("it is {state}, and must be READY: POST /api/v1/models/{name}/load first");
        Err(ApiError::Conflict { what: format!("{name}@{version}"), reason })
    }

    /// Checks that an alias or a version is one of those that are ready.
    fn stands_for(&self, name: &str, target: &str, memory: &Memory) -> Result<(), ApiError> {
        let default = self.router.serving(name).map(|serving| serving.version);
        match (memory.plan.version(target, default), Which::parse(target)?) {
            (Some(version), _) => self.is_ready(name, version),
            (None, which) => {
                let hint = format!("PUT /api/v1/models/{name}/aliases/{which} sets it");
                Err(ApiError::NotFound { kind: "alias", name: format!("{name}@{which}"), hint })
            }
        }
    }
}

/// Why a version did not come up.
fn failed(status: &ModelStatus, version: Option<u64>) -> ApiError {
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
    ApiError::LoadFailed { model: status.name.clone(), version, reason }
}
