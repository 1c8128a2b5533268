//! The small files beside a model's versions, which survive a restart of the server: its configuration, its desired
//! state, and its load failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::model_record::{LoadFailure, ModelRecord};
use super::version_scan::FingerprintedVersion;
use crate::desired_state::PLAN_FILE;
use crate::lifecycle::ModelLifecycle;
use crate::model_config::{ModelConfig, SETTINGS_FILE};

/// The file of load failures.
pub(crate) const FAILURES_FILE: &str = "failures.json";

impl ModelLifecycle {
    /// Reads the configuration, the desired state and the load failures of a model.
    pub(crate) async fn read_persisted_state(self: &Arc<ModelLifecycle>, name: &str, memory: &mut ModelRecord) {
        let (models, model, read_plan) = (self.models.clone(), name.to_owned(), !memory.desired_read);
        let read = tokio::task::spawn_blocking(move || {
            let first = |file| if read_plan { models.read_note(&model, file) } else { Ok(None) };
            (models.read_note(&model, SETTINGS_FILE), first(PLAN_FILE), first(FAILURES_FILE))
        });
        let Ok((settings, plan, failures)) = read.await else { return };
        if read_plan {
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

    /// Saves the desired state.
    pub(crate) async fn save_desired_state(&self, name: &str, memory: &ModelRecord) {
        let (models, model, plan) = (self.models.clone(), name.to_owned(), memory.desired.clone());
        let save = move || {
            let text = serde_json::to_vec_pretty(&plan).unwrap_or_default();
            models.write_note(&model, PLAN_FILE, &text)
        };
        if let Ok(Err(error)) = tokio::task::spawn_blocking(save).await {
            tracing::error!(model = name, %error, "the desired state cannot be saved and will be lost at a restart");
        }
    }
}
