//! The small files beside a model's versions, which survive a restart of the server: its configuration, its desired
//! state, and its load failures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use saggar_store::error::ModelError;

use super::model_record::{LoadFailure, ModelRecord};
use super::version_scan::FingerprintedVersion;
use crate::desired_state::PLAN_FILE;
use crate::lifecycle::ModelLifecycle;
use crate::model_config::{ModelConfig, SETTINGS_FILE};

/// The file of load failures.
pub(crate) const FAILURES_FILE: &str = "failures.json";

/// How long a command waits for versions that other servers have just published.
const SYNCHRONIZATION_WAIT_MAX: Duration = Duration::from_secs(5);

impl ModelLifecycle {
    /// Reads the configuration, the desired state and the load failures of a model.
    pub(crate) async fn read_persisted_state(self: &Arc<ModelLifecycle>, name: &str, memory: &mut ModelRecord) {
        let (models, model, is_first) = (self.models.clone(), name.to_owned(), !memory.desired_read);
        // Another server can have changed it.
        let read_plan = is_first || models.shares_notes();
        let read = tokio::task::spawn_blocking(move || {
            let read_if = |condition, file| if condition { models.read_note(&model, file) } else { Ok(None) };
            let settings = models.read_note(&model, SETTINGS_FILE);
            (settings, read_if(read_plan, PLAN_FILE), read_if(is_first, FAILURES_FILE))
        });
        let Ok((settings, plan, failures)) = read.await else { return };
        if is_first {
            // An unreadable file loses only the reasons: required versions are retried anyway.
            let failures = failures.ok().flatten().and_then(|text| serde_json::from_slice(&text).ok());
            self.restore_failures(name, memory, failures.unwrap_or_default());
        }
        memory.desired_read = true;
        match plan.map(|text| text.map(|text| serde_json::from_slice(&text))) {
            Ok(Some(Ok(plan))) => memory.desired = plan,
            Ok(Some(Err(error))) => tracing::error!(model = name, %error, "{PLAN_FILE} is invalid"),
            Ok(None) => {}
            Err(error) => tracing::error!(model = name, %error, "{PLAN_FILE} cannot be read"),
        }
        match settings {
            Ok(text) if text != memory.config_text => {
                let parse =
                    |text: &[u8]| tracing::warn_span!("configure", model = name).in_scope(|| ModelConfig::parse(text));
                let parsed = text.as_deref().map_or_else(|| Ok(self.default_config(name)), parse);
                memory.config_text = text;
                match parsed {
                    Ok(settings) => self.apply_config(name, memory, settings),
                    Err(error) => tracing::error!(model = name, %error, "the previous configuration is kept"),
                }
            }
            Ok(_) => {}
            Err(error) => tracing::error!(model = name, %error, "{SETTINGS_FILE} cannot be read"),
        }
    }

    /// Applies the configuration to the loaded versions. If it needs other instances, they are reloaded.
    fn apply_config(&self, name: &str, memory: &mut ModelRecord, settings: ModelConfig) {
        let again = settings.instances.max != memory.config.instances.max
            || settings.warmup != memory.config.warmup
            || settings.ensemble != memory.config.ensemble
            || settings.without != memory.config.without;
        if again {
            memory.loaded.clear();
            memory.refused.clear();
        } else if settings != memory.config {
            for version in memory.loaded.keys() {
                let Some(serving) = self.router.ready_version(name, *version) else { continue };
                let largest = serving.predictor().signature().batch_sizes.last().copied().unwrap_or(1);
                let policy = settings.serving_policy(largest).without(self.disabled_optimizations(&settings));
                self.router.add_version(serving.with_policy(policy, &self.metrics));
            }
        }
        memory.config = settings;
    }

    /// Lists versions as failed that an earlier server process could not load. They are retried if they are required,
    /// because the cause can be gone.
    fn restore_failures(
        self: &Arc<ModelLifecycle>,
        name: &str,
        memory: &mut ModelRecord,
        failures: BTreeMap<u64, LoadFailure>,
    ) {
        let versions = self.scanned_versions(name);
        let is_same = |version: &u64, failure: &LoadFailure| {
            versions
                .get(version)
                .is_some_and(|on_disk: &FingerprintedVersion| on_disk.fingerprint == failure.fingerprint)
        };
        memory.persisted_failures =
            failures.into_iter().filter(|(version, failure)| is_same(version, failure)).collect();
        memory.failures_saved = memory.failures();
        for (version, failure) in &memory.persisted_failures {
            self.router.set_load_failed(name, *version, failure.reason.clone());
        }
    }

    /// Saves the load failures if they have changed.
    pub(crate) async fn save_failures(&self, name: &str, memory: &mut ModelRecord) {
        let failures = memory.failures();
        if memory.failures_saved == failures || memory.config.ensemble.is_some() {
            return;
        }
        let (models, model) = (self.models.clone(), name.to_owned());
        let text = serde_json::to_vec_pretty(&failures).unwrap_or_default();
        memory.failures_saved = failures;
        let save = move || models.write_note(&model, FAILURES_FILE, &text);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(save).await {
            tracing::warn!(model = name, %error, "load failures cannot be saved and will be lost at a restart");
        }
    }

    /// Saves the desired state. If it cannot be saved, logs that.
    ///
    /// # Errors
    /// Returns `ChangedElsewhere` if another server changed it at the same time, whose change is read at the next
    /// reconciliation.
    pub(crate) async fn save_desired_state(&self, name: &str, memory: &ModelRecord) -> Result<(), ModelError> {
        let (models, model, plan) = (self.models.clone(), name.to_owned(), memory.desired.clone());
        let save = move || {
            let text = serde_json::to_vec_pretty(&plan).unwrap_or_default();
            if models.shares_notes() && models.read_note(&model, PLAN_FILE)?.is_some_and(|saved| saved == text) {
                return Ok(());
            }
            models.write_note(&model, PLAN_FILE, &text)
        };
        match tokio::task::spawn_blocking(save).await {
            Ok(Err(error @ ModelError::ChangedElsewhere { .. })) => Err(error),
            Ok(Err(error)) => {
                tracing::error!(model = name, %error, "the desired state cannot be saved and will be lost at a restart");
                Ok(())
            }
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    /// Reads what other servers have changed, before a command changes something.
    pub(crate) async fn refresh_shared_state(self: &Arc<ModelLifecycle>, name: &str, memory: &mut ModelRecord) {
        if !self.models.shares_notes() {
            return;
        }
        let (models, model) = (self.models.clone(), name.to_owned());
        let refresh =
            move || [PLAN_FILE, SETTINGS_FILE].iter().try_for_each(|file| models.refresh_note(&model, file).map(drop));
        if let Ok(Err(error)) = tokio::task::spawn_blocking(refresh).await {
            tracing::warn!(model = name, %error, "changes of other servers cannot be read");
        }
        self.read_persisted_state(name, memory).await;
    }

    /// Fetches versions that other servers have just published.
    pub(crate) async fn synchronize_versions(&self) {
        if !self.models.is_mirrored() {
            return;
        }
        let models = self.models.clone();
        let fetched = tokio::task::spawn_blocking(move || models.synchronize());
        // A version that takes longer is fetched meanwhile.
        if let Ok(Ok(Err(error))) = tokio::time::timeout(SYNCHRONIZATION_WAIT_MAX, fetched).await {
            tracing::warn!(%error, "versions of other servers cannot be fetched");
        }
    }

    /// Removes versions that no longer exist from the desired state. A version that this server has not fetched yet is no
    /// such version.
    pub(crate) async fn forget_removed_versions(
        &self,
        name: &str,
        memory: &mut ModelRecord,
        versions: &BTreeMap<u64, FingerprintedVersion>,
    ) {
        let missing = memory.desired.versions();
        let missing: Vec<u64> = missing.into_iter().filter(|version| !versions.contains_key(version)).collect();
        if missing.is_empty() {
            return;
        }
        let (models, model) = (self.models.clone(), name.to_owned());
        let removed = move || -> BTreeSet<u64> {
            missing.into_iter().filter(|version| models.is_removed(&model, *version).unwrap_or(true)).collect()
        };
        let Ok(removed) = tokio::task::spawn_blocking(removed).await else { return };
        if memory.desired.forget_missing(|version| !removed.contains(&version)) {
            tracing::info!(model = name, "removed references to versions that no longer exist");
            self.save_in_background(name, memory).await;
        }
    }

    /// Saves a desired state that no client has asked for. If another server has just changed it, its state is read at the
    /// next reconciliation.
    pub(crate) async fn save_in_background(&self, name: &str, memory: &ModelRecord) {
        if let Err(error) = self.save_desired_state(name, memory).await {
            tracing::debug!(model = name, %error, "the desired state is not saved");
        }
    }
}
