//! The model lifecycle: reconciles the loaded versions with the models directory and the desired state. Loads missing
//! versions and unloads those that nothing needs. Changes of one model run in sequence, those of different models in
//! parallel.
//!
//! Serving versions continue to serve whatever happens to other versions. An incomplete version is waited for. A
//! refused version is retried when its files change. If a version's directory is removed, the previous version takes
//! its place. Commands of users are in [`commands`], sleeping and waking in [`residency`].

mod commands;
mod deploy;
pub mod device_recovery;
mod ensemble_version;
mod load_limiter;
mod model_record;
mod on_demand;
mod persisted_state;
mod promotion;
pub mod publish;
pub mod push;
pub mod reconcile_loop;
pub mod removal;
pub mod residency;
pub mod version_load;
mod version_scan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use saggar_clock::Clock;
use saggar_compile::DisabledOptimizations;
use saggar_metrics::MetricsRegistry;
use saggar_plugin::FailureReason;
use saggar_store::error::ModelError;
use saggar_store::models::{ModelRegistry, VersionCompleteness};

use crate::limits::LOAD_TRIES_MAX;
use crate::model_config::ModelConfig;
use crate::model_state::{ListedVersion, Residency, VersionSwap};
use crate::predictor::{LoadError, LoadKind, ModelHost};
use crate::router::ModelRouter;
use crate::unserved_reason::{FollowPolicy, UnservedReason};
use crate::version_origin::VersionOrigin;
use crate::version_state::VersionState;
use load_limiter::LoadLimiter;
use model_record::{ModelRecord, ReconcileCause};
use version_load::{SampleDecoder, VersionLoad, load_and_warm};
use version_scan::{FingerprintedVersion, VersionFingerprint, redact_directory, scan_models};

/// Decides which versions are loaded.
#[derive(Debug)]
pub struct ModelLifecycle {
    pub(crate) models: ModelRegistry,
    pub(crate) host: Arc<dyn ModelHost>,
    pub(crate) router: Arc<ModelRouter>,
    pub(crate) metrics: Arc<MetricsRegistry>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Device bytes that all versions can hold together.
    pub(crate) bytes_max: u64,
    /// Decodes the warm-up samples of configurations.
    pub(crate) decode_sample: SampleDecoder,
    /// Configurations of models that have no configuration file.
    default_configs: BTreeMap<String, ModelConfig>,
    pub(crate) follow: FollowPolicy,
    /// The optimizations that are switched off for all models.
    without: DisabledOptimizations,
    records: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<ModelRecord>>>>,
    scanned: Mutex<BTreeMap<String, BTreeMap<u64, FingerprintedVersion>>>,
    load_limiter: LoadLimiter,
    /// The error of the last scan, so that it is logged once.
    last_scan_error: Mutex<Option<String>>,
}

impl ModelLifecycle {
    /// Creates a lifecycle that loads versions in `models` with `host` and serves them through `router`. Together they
    /// can hold `bytes_max` bytes of device memory. `decode_sample` decodes the warm-up samples of configurations.
    pub fn new(
        models: ModelRegistry,
        host: Arc<dyn ModelHost>,
        router: Arc<ModelRouter>,
        metrics: Arc<MetricsRegistry>,
        clock: Arc<dyn Clock>,
        bytes_max: u64,
        decode_sample: SampleDecoder,
    ) -> ModelLifecycle {
        ModelLifecycle {
            models,
            host,
            router,
            metrics,
            clock,
            bytes_max,
            decode_sample,
            default_configs: BTreeMap::new(),
            follow: FollowPolicy::default(),
            without: DisabledOptimizations::NONE,
            records: Mutex::default(),
            scanned: Mutex::default(),
            load_limiter: LoadLimiter::new(),
            last_scan_error: Mutex::default(),
        }
    }

    /// Sets the configurations, by name, of models without a configuration file.
    #[must_use]
    pub fn with_default_configs(self, settings: BTreeMap<String, ModelConfig>) -> ModelLifecycle {
        ModelLifecycle { default_configs: settings, ..self }
    }

    /// Sets the default version of models for which no user promoted one.
    #[must_use]
    pub fn with_follow_policy(self, follow: FollowPolicy) -> ModelLifecycle {
        ModelLifecycle { follow, ..self }
    }

    /// Sets the optimizations that are switched off for all models.
    #[must_use]
    pub fn with_disabled_optimizations(self, without: DisabledOptimizations) -> ModelLifecycle {
        ModelLifecycle { without, ..self }
    }

    /// Returns the optimizations that are switched off for a model with this configuration.
    pub(crate) fn disabled_optimizations(&self, config: &ModelConfig) -> DisabledOptimizations {
        self.without.union(config.without)
    }

    /// Returns the configuration of a model without a configuration file.
    pub(crate) fn default_config(&self, name: &str) -> ModelConfig {
        self.default_configs.get(name).cloned().unwrap_or_default()
    }

    pub(crate) fn model_record(&self, name: &str) -> Arc<tokio::sync::Mutex<ModelRecord>> {
        let mut entries = self.records.lock();
        let new = || {
            Arc::new(tokio::sync::Mutex::new(ModelRecord {
                config: self.default_config(name),
                ..ModelRecord::default()
            }))
        };
        Arc::clone(entries.entry(name.to_owned()).or_insert_with(new))
    }

    fn lock_scanned(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<u64, FingerprintedVersion>>> {
        self.scanned.lock()
    }

    /// Returns the versions of a model as of the last scan.
    pub(crate) fn scanned_versions(&self, name: &str) -> BTreeMap<u64, FingerprintedVersion> {
        self.lock_scanned().get(name).cloned().unwrap_or_default()
    }

    /// Scans the models directory once and loads new versions, several models at a time.
    pub async fn reconcile_all(self: &Arc<ModelLifecycle>) {
        let began = Instant::now();
        if !self.rescan().await {
            return;
        }
        let names: Vec<String> = self.lock_scanned().keys().cloned().collect();
        let mut models = tokio::task::JoinSet::new();
        for name in names {
            let lifecycle = Arc::clone(self);
            models.spawn(async move {
                let entry = lifecycle.model_record(&name);
                let mut memory = entry.lock().await;
                let cause = ReconcileCause { reason: "NEWEST", wakes: false, began };
                lifecycle.reconcile(&name, &mut memory, cause).await;
            });
        }
        while models.join_next().await.is_some() {}
        self.reconcile_ensembles().await;
    }

    /// Reconciles ensembles, whose steps can have been loaded or replaced.
    pub(crate) async fn reconcile_ensembles(self: &Arc<ModelLifecycle>) {
        let ensembles = self.router.list().into_iter().filter(|status| status.config.ensemble.is_some());
        for status in ensembles {
            let entry = self.model_record(&status.name);
            let mut memory = entry.lock().await;
            self.reconcile(&status.name, &mut memory, ReconcileCause { wakes: false, ..ReconcileCause::new("NEWEST") })
                .await;
        }
    }

    /// Scans the directory for versions. Returns false if it cannot be read.
    pub(crate) async fn rescan(self: &Arc<ModelLifecycle>) -> bool {
        self.metrics.families.watch_rescans.with_label_values::<&str>(&[]).inc();
        let models = self.models.clone();
        let scanned = tokio::task::spawn_blocking(move || scan_models(&models)).await;
        let found = match scanned {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return self.log_scan_error(error.to_string()),
            Err(_) => return self.log_scan_error("scanning the models directory panicked".to_owned()),
        };
        *self.last_scan_error.lock() = None;
        self.records.lock().retain(|name, _| found.contains_key(name));
        let mut listed = BTreeMap::new();
        for (name, versions) in &found {
            listed.insert(name.clone(), self.list_versions(name, versions).await);
        }
        *self.lock_scanned() = found;
        self.router.set_listed_versions(listed);
        true
    }

    /// Logs a scan error once, not at every tick. Loaded versions continue to serve. Returns false.
    fn log_scan_error(&self, trouble: String) -> bool {
        let mut last = self.last_scan_error.lock();
        if last.as_ref() != Some(&trouble) {
            tracing::error!(error = trouble, "the models directory cannot be read");
            *last = Some(trouble);
        }
        false
    }

    /// Returns the versions of a model as shown to clients.
    async fn list_versions(
        &self,
        name: &str,
        versions: &BTreeMap<u64, FingerprintedVersion>,
    ) -> BTreeMap<u64, ListedVersion> {
        let entry = self.model_record(name);
        let same =
            |version: &u64, then: &VersionFingerprint| versions.get(version).is_some_and(|v| v.fingerprint == *then);
        let refused: BTreeMap<u64, String> = match entry.try_lock() {
            Ok(mut memory) => {
                memory.refused.retain(|version, refused| same(version, &refused.failure.fingerprint));
                memory.persisted_failures.retain(|version, failure| same(version, &failure.fingerprint));
                memory.failures().into_iter().map(|(version, failure)| (version, failure.reason)).collect()
            }
            // A model that is being changed is listed as before, for versions whose files are the same.
            Err(_) => {
                let before = self.scanned_versions(name);
                let was_same = |version: &u64| before.get(version).is_some_and(|was| same(version, &was.fingerprint));
                let known_versions = self.router.status(name).map(|status| status.versions).unwrap_or_default();
                let failed = known_versions.into_iter().filter(|it| it.state == VersionState::Failed);
                failed.filter(|it| was_same(&it.version)).map(|it| (it.version, it.reason)).collect()
            }
        };
        let list = |(version, on_disk): (&u64, &FingerprintedVersion)| {
            let refused = refused.get(version).cloned();
            let waiting = match &on_disk.found.state {
                VersionCompleteness::Complete => String::new(),
                VersionCompleteness::Incomplete(reason) => {
                    format!("INCOMPLETE: {}", redact_directory(reason, &on_disk.found))
                }
            };
            let failed = refused.is_some();
            (*version, ListedVersion { origin: on_disk.origin.clone(), reason: refused.unwrap_or(waiting), failed })
        };
        versions.iter().map(list).collect()
    }

    /// Reconciles the model with its desired state as far as possible.
    pub(crate) async fn reconcile(
        self: &Arc<ModelLifecycle>,
        name: &str,
        memory: &mut ModelRecord,
        cause: ReconcileCause,
    ) {
        self.read_persisted_state(name, memory).await;
        self.reconcile_versions(name, memory, cause).await;
        self.save_failures(name, memory).await;
        self.log_unserved_version(name, memory);
    }

    /// Logs once that a published version is not served, and why.
    fn log_unserved_version(&self, name: &str, memory: &mut ModelRecord) {
        let Ok(status) = self.router.status(name) else { return };
        let Some(newest) = status.versions.last().filter(|newest| newest.version > memory.newest_logged) else {
            return;
        };
        if matches!(
            newest.unserved,
            Some(UnservedReason::NotPromoted { .. } | UnservedReason::ModelUnloaded | UnservedReason::ConditionNotMet)
        ) {
            memory.newest_logged = newest.version;
            let measured = newest.origin.as_ref().map(VersionOrigin::summarize_metrics).unwrap_or_default();
            let reason = &newest.reason;
            tracing::info!(model = name, version = newest.version, measured, reason, "stored, and not served");
        }
    }

    async fn reconcile_versions(
        self: &Arc<ModelLifecycle>,
        name: &str,
        memory: &mut ModelRecord,
        cause: ReconcileCause,
    ) {
        let versions = self.scanned_versions(name);
        self.forget_removed_versions(name, memory, &versions).await;
        self.publish_desired_state(name, memory);
        let rest = self.router.status(name).map(|status| status.residency).unwrap_or_default();
        if memory.desired.unloaded {
            return self.take_out_of_service(name, memory, Residency::Unloaded, "UNLOADED");
        }
        if rest != Residency::Awake && !cause.wakes {
            return;
        }
        if let Some(ensemble) = memory.config.ensemble.clone() {
            return self.reconcile_ensemble(name, memory, &ensemble, cause);
        }
        let before = self.router.default_version(name).map(|serving| serving.version);
        let (default, kind) = match memory.desired.fixed_default(self.follow) {
            Some(version) => {
                let kind = self.ensure_loaded(name, version, &versions, memory).await;
                (kind.is_some().then_some(version), kind.flatten())
            }
            None if self.follow == FollowPolicy::Promoted => (None, None),
            None => self.load_newest(name, &versions, memory).await,
        };
        // If the new default cannot be loaded, the old one stays in service.
        let default = default.or(before.filter(|version| self.router.ready_version(name, *version).is_some()));
        let mut keep: BTreeSet<u64> = default.into_iter().collect();
        let needed = memory.desired.required_versions();
        memory.on_demand.retain(|version| !needed.contains(version) && default != Some(*version));
        for version in needed.into_iter().chain(memory.on_demand.clone()) {
            if self.ensure_loaded(name, version, &versions, memory).await.is_some() {
                keep.insert(version);
            }
        }
        memory.loaded.retain(|version, _| keep.contains(version));
        let swap = (default != before).then(|| VersionSwap {
            at_ms: self.clock.now_ms(),
            from: before,
            to: default,
            kind: kind.map_or(if default.is_none() { "unload" } else { "alias" }, LoadKind::name),
            reason: cause.reason,
            seconds: cause.began.elapsed().as_secs_f64(),
        });
        let swapped = swap.is_some();
        self.log_swap(name, swap.as_ref());
        self.router.set_default_version(name, default, &keep, swap);
        self.router.update_model(name, |model| model.residency = Residency::Awake);
        if swapped {
            memory.last_woken = Some(Instant::now());
            self.remember_default(name, memory, before.filter(|_| cause.reason != "ROLLED_BACK"), default).await;
        }
        self.free_device_memory(name, memory);
    }

    /// Saves the current and the former default version, so that they survive a restart.
    async fn remember_default(
        self: &Arc<ModelLifecycle>,
        name: &str,
        memory: &mut ModelRecord,
        before: Option<u64>,
        default: Option<u64>,
    ) {
        let plan = memory.desired.clone();
        before.into_iter().for_each(|before| memory.desired.push_former_default(before));
        memory.desired.last_default = default.or(memory.desired.last_default);
        if memory.desired != plan {
            self.save_in_background(name, memory).await;
            self.publish_desired_state(name, memory);
        }
    }

    /// Applies the desired state to the routing of requests.
    pub(crate) fn publish_desired_state(self: &Arc<ModelLifecycle>, name: &str, memory: &ModelRecord) {
        self.router.set_desired_state(name, &memory.desired, &memory.config, self.follow);
    }

    /// Loads the newest version of a model that can be loaded, unless it is loaded already. Returns the version and how
    /// it was loaded.
    async fn load_newest(
        self: &Arc<ModelLifecycle>,
        name: &str,
        versions: &BTreeMap<u64, FingerprintedVersion>,
        memory: &mut ModelRecord,
    ) -> (Option<u64>, Option<LoadKind>) {
        // While the serving version's directory exists, older versions are not considered.
        let serving = self.router.default_version(name).map(|serving| serving.version);
        let oldest = serving.filter(|version| versions.contains_key(version)).unwrap_or(0);
        let mut tries = 0;
        for (&version, on_disk) in versions.range(oldest..).rev() {
            let is_up = memory.loaded.get(&version) == Some(&on_disk.fingerprint);
            if self.is_held_back(version, versions, memory) {
                continue;
            }
            if !is_up && (!self.can_load(version, on_disk, memory) || tries == LOAD_TRIES_MAX) {
                continue;
            }
            tries += 1;
            if let Some(kind) = self.ensure_loaded(name, version, versions, memory).await {
                return (Some(version), kind);
            }
        }
        (None, None)
    }

    fn can_load(&self, version: u64, on_disk: &FingerprintedVersion, memory: &ModelRecord) -> bool {
        !memory.has_refused(version, &on_disk.fingerprint) && on_disk.found.state == VersionCompleteness::Complete
    }

    /// Ensures that a version is loaded with its current files. Returns `None` if it cannot be loaded, and the kind of
    /// load if it was not loaded before.
    async fn ensure_loaded(
        self: &Arc<ModelLifecycle>,
        name: &str,
        version: u64,
        versions: &BTreeMap<u64, FingerprintedVersion>,
        memory: &mut ModelRecord,
    ) -> Option<Option<LoadKind>> {
        let ready = self.router.ready_version(name, version);
        let Some(on_disk) = versions.get(&version) else { return ready.map(|_| None) };
        if memory.loaded.get(&version) == Some(&on_disk.fingerprint) && ready.is_some() {
            return Some(None);
        }
        if !self.can_load(version, on_disk, memory) {
            // A serving version stays until it can be replaced.
            return ready.map(|_| None);
        }
        match self.load_version(name, version, on_disk, memory).await {
            Some(kind) => Some(Some(kind)),
            None => ready.map(|_| None),
        }
    }

    /// Loads a version. Returns `None` if that fails, and records the failure.
    async fn load_version(
        self: &Arc<ModelLifecycle>,
        name: &str,
        version: u64,
        on_disk: &FingerprintedVersion,
        memory: &mut ModelRecord,
    ) -> Option<LoadKind> {
        let bring_up = VersionLoad {
            host: Arc::clone(&self.host),
            models: self.models.clone(),
            metrics: Arc::clone(&self.metrics),
            model: name.to_owned(),
            dir: on_disk.found.dir.clone(),
            settings: memory.config.clone(),
            without: self.disabled_optimizations(&memory.config),
            decode_sample: self.decode_sample,
        };
        let load = async {
            let began = Instant::now();
            self.router.set_loading(name, Some(version));
            tracing::info!(model = name, version, "loading");
            let mut result = load_and_warm(bring_up.clone()).await;
            while matches!(&result, Err(error) if error.failure_reason() == Some(FailureReason::OutOfMemory))
                && self.evict_one(name, memory).await
            {
                result = load_and_warm(bring_up.clone()).await;
            }
            self.router.set_loading(name, None);
            (result, began)
        };
        let (result, began) = self.load_limiter.run(load).await?;
        match result {
            Ok((origin, loaded)) => {
                let (kind, device, weights) = (loaded.kind, loaded.device.clone(), origin.weights);
                self.router.add_version(bring_up.live_version(version, origin, loaded));
                memory.loaded.insert(version, on_disk.fingerprint);
                memory.refused.remove(&version);
                memory.persisted_failures.remove(&version);
                let families = &self.metrics.families;
                families.model_setups.with_label_values(&[name, &version.to_string()]).inc();
                self.router.count_reload(name, [kind.name(), "ok", ""]);
                let seconds = began.elapsed().as_secs_f64();
                families.model_swap_duration.with_label_values(&[name]).observe(seconds);
                tracing::info!(model = name, version, kind = kind.name(), %weights, device, seconds, "version is ready");
                Some(kind)
            }
            // The version was just removed. The next scan finds what exists.
            Err(LoadError::Files(ModelError::NotFound { .. })) => None,
            Err(error) => {
                self.record_load_failure(name, version, on_disk, memory, &error);
                None
            }
        }
    }

    fn record_load_failure(
        &self,
        name: &str,
        version: u64,
        on_disk: &FingerprintedVersion,
        memory: &mut ModelRecord,
        error: &LoadError,
    ) {
        let reason = format!("{}: {}", error.reason(), redact_directory(&error.to_string(), &on_disk.found));
        let result = if error.is_rejection() { "rejected" } else { "failed" };
        self.router.count_reload(name, ["full", result, error.reason()]);
        tracing::warn!(model = name, version, reason, "version refused; the previous version continues to serve");
        memory.refuse(version, on_disk.fingerprint, &reason, error.failure_reason());
        self.router.set_load_failed(name, version, reason);
    }
}
