//! What decides which versions are up: it looks at the models directory and at what users decided, brings up what is
//! missing, and lets go of what nothing needs. One model's changes happen one after the other, those of several models at
//! the same time.
//!
//! What serves goes on serving whatever happens to other versions. A version whose files are half there is waited for; one
//! that is refused is tried again when its files change; one whose directory is removed gives way to the one before it.
//! What users tell it is in [`commands`](super::commands), sleeping and waking in [`residency`](super::residency).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use saggar_metrics::Metrics;
use saggar_store::clock::Clock;
use saggar_store::error::ModelError;
use saggar_store::models::{FoundState, Models};

use super::bring_up::{BringUp, load};
use super::found::{Fingerprint, OnDisk, scan, without_dir};
use super::idle::{Follow, IdleReason};
use super::load_turns::LoadTurns;
use super::notes::LoadFailure;
use super::plan::Plan;
use super::predictor::{Kind, LoadError, ModelHost};
use super::router::ModelRouter;
use super::settings::Settings;
use super::state::{Listed, Rest, Swap};
use super::version::{Origin, VersionState};
use crate::limits::LOAD_TRIES_MAX;

/// What is remembered of a model between looks.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) plan: Plan,
    pub(super) settings: Settings,
    /// The settings file as it was read last.
    pub(super) settings_text: Option<Vec<u8>>,
    pub(super) plan_read: bool,
    /// The files of versions that are up, as they were when they were loaded.
    pub(super) up: BTreeMap<u64, Fingerprint>,
    /// Versions that were refused: their files then, and why.
    pub(super) refused: BTreeMap<u64, (Fingerprint, String)>,
    /// Versions that a server before this one could not bring up, as far as this one did not try them.
    pub(super) recalled: BTreeMap<u64, LoadFailure>,
    /// What was written down of both last.
    pub(super) failures_written: BTreeMap<u64, LoadFailure>,
    /// Versions that are up because requests named them, the one that was loaded last at the end.
    pub(super) on_demand: Vec<u64>,
    /// The newest version of which the log says that it is stored and not served.
    announced: u64,
    /// When it was last brought up or asked for.
    pub(super) woken: Option<Instant>,
}

impl Memory {
    /// Every version that could not be brought up.
    pub(super) fn failures(&self) -> BTreeMap<u64, LoadFailure> {
        let failure = |(version, (fingerprint, reason)): (&u64, &(Fingerprint, String))| {
            (*version, LoadFailure { fingerprint: *fingerprint, reason: reason.clone() })
        };
        let mut failures = self.recalled.clone();
        failures.extend(self.refused.iter().map(failure));
        failures
    }
}

/// Decides which versions are up.
#[derive(Debug)]
pub struct Lifecycle {
    pub(super) models: Models,
    pub(super) host: Arc<dyn ModelHost>,
    pub(super) router: Arc<ModelRouter>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Arc<dyn Clock>,
    /// Device bytes that all versions may hold together.
    pub(super) bytes_max: u64,
    /// How models are served that have no settings of their own.
    settings: BTreeMap<String, Settings>,
    pub(super) follow: Follow,
    entries: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<Memory>>>>,
    found: Mutex<BTreeMap<String, BTreeMap<u64, OnDisk>>>,
    loads: LoadTurns,
    /// What was wrong with the last look, so that it is logged once.
    trouble: Mutex<Option<String>>,
}

/// Why a model is looked at anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    /// `NEWEST`, `PROMOTED`, ... as [`Swap::reason`].
    pub(super) reason: &'static str,
    /// Whether it brings up a model that is not.
    pub(super) wakes: bool,
    pub(super) began: Instant,
}

impl Cause {
    pub(super) fn new(reason: &'static str) -> Cause {
        Cause { reason, wakes: true, began: Instant::now() }
    }
}

impl Lifecycle {
    /// One that brings up versions in `models` by `host`, to serve through `router`; together they may hold `bytes_max` of
    /// device memory.
    pub fn new(
        models: Models,
        host: Arc<dyn ModelHost>,
        router: Arc<ModelRouter>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        bytes_max: u64,
    ) -> Lifecycle {
        Lifecycle {
            models,
            host,
            router,
            metrics,
            clock,
            bytes_max,
            settings: BTreeMap::new(),
            follow: Follow::default(),
            entries: Mutex::default(),
            found: Mutex::default(),
            loads: LoadTurns::new(),
            trouble: Mutex::default(),
        }
    }

    /// With settings for models, by name, that have no file of their own that says how to serve them.
    #[must_use]
    pub fn with_settings(self, settings: BTreeMap<String, Settings>) -> Lifecycle {
        Lifecycle { settings, ..self }
    }

    /// Which version the default is where no user promoted one.
    #[must_use]
    pub fn following(self, follow: Follow) -> Lifecycle {
        Lifecycle { follow, ..self }
    }

    /// How a model is served that does not say so itself.
    pub(super) fn told(&self, name: &str) -> Settings {
        self.settings.get(name).cloned().unwrap_or_default()
    }

    pub(super) fn entry(&self, name: &str) -> Arc<tokio::sync::Mutex<Memory>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(tokio::sync::Mutex::new(Memory { settings: self.told(name), ..Memory::default() }));
        Arc::clone(entries.entry(name.to_owned()).or_insert_with(new))
    }

    fn found(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<u64, OnDisk>>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The versions of a model, as the last look found them.
    pub(super) fn versions(&self, name: &str) -> BTreeMap<u64, OnDisk> {
        self.found().get(name).cloned().unwrap_or_default()
    }

    /// Looks at the models directory once and brings up what is new, several models at a time.
    pub async fn look(self: &Arc<Lifecycle>) {
        let began = Instant::now();
        if !self.scan().await {
            return;
        }
        let names: Vec<String> = self.found().keys().cloned().collect();
        let mut models = tokio::task::JoinSet::new();
        for name in names {
            let lifecycle = Arc::clone(self);
            models.spawn(async move {
                let entry = lifecycle.entry(&name);
                let mut memory = entry.lock().await;
                let cause = Cause { reason: "NEWEST", wakes: false, began };
                lifecycle.settle(&name, &mut memory, cause).await;
            });
        }
        while models.join_next().await.is_some() {}
        self.connect_ensembles().await;
    }

    /// Settles ensembles, whose steps may have come up or changed.
    pub(super) async fn connect_ensembles(self: &Arc<Lifecycle>) {
        let ensembles = self.router.list().into_iter().filter(|status| status.settings.ensemble.is_some());
        for status in ensembles {
            let entry = self.entry(&status.name);
            let mut memory = entry.lock().await;
            self.settle(&status.name, &mut memory, Cause { wakes: false, ..Cause::new("NEWEST") }).await;
        }
    }

    /// Looks which versions there are. False where that cannot be said.
    pub(super) async fn scan(self: &Arc<Lifecycle>) -> bool {
        self.metrics.families.watch_rescans.with_label_values::<&str>(&[]).inc();
        let models = self.models.clone();
        let scanned = tokio::task::spawn_blocking(move || scan(&models)).await;
        let found = match scanned {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return self.troubled(error.to_string()),
            Err(_) => return self.troubled("looking at the models panicked".to_owned()),
        };
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, _| found.contains_key(name));
        let mut listed = BTreeMap::new();
        for (name, versions) in &found {
            listed.insert(name.clone(), self.listed(name, versions).await);
        }
        *self.found() = found;
        self.router.describe(listed);
        true
    }

    /// Says once, not at every tick, that the models cannot be looked at; what serves goes on.
    fn troubled(&self, trouble: String) -> bool {
        let mut last = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != Some(&trouble) {
            tracing::error!(error = trouble, "the models directory cannot be read");
            *last = Some(trouble);
        }
        false
    }

    /// The versions of a model as clients are told of them.
    async fn listed(&self, name: &str, versions: &BTreeMap<u64, OnDisk>) -> BTreeMap<u64, Listed> {
        let entry = self.entry(name);
        let same = |version: &u64, then: &Fingerprint| versions.get(version).is_some_and(|v| v.fingerprint == *then);
        let refused: BTreeMap<u64, String> = match entry.try_lock() {
            Ok(mut memory) => {
                memory.refused.retain(|version, (then, _)| same(version, then));
                memory.recalled.retain(|version, failure| same(version, &failure.fingerprint));
                memory.failures().into_iter().map(|(version, failure)| (version, failure.reason)).collect()
            }
            // A model that is being changed is shown as it was, as far as its files are the same.
            Err(_) => {
                let before = self.versions(name);
                let was_same = |version: &u64| before.get(version).is_some_and(|was| same(version, &was.fingerprint));
                let shown = self.router.status(name).map(|status| status.versions).unwrap_or_default();
                let failed = shown.into_iter().filter(|it| it.state == VersionState::Failed);
                failed.filter(|it| was_same(&it.version)).map(|it| (it.version, it.reason)).collect()
            }
        };
        let list = |(version, on_disk): (&u64, &OnDisk)| {
            let refused = refused.get(version).cloned();
            let waiting = match &on_disk.found.state {
                FoundState::Complete => String::new(),
                FoundState::Incomplete(reason) => format!("INCOMPLETE: {}", without_dir(reason, &on_disk.found)),
            };
            let failed = refused.is_some();
            (*version, Listed { origin: on_disk.origin.clone(), reason: refused.unwrap_or(waiting), failed })
        };
        versions.iter().map(list).collect()
    }

    /// Makes what is up what should be, as far as it can be.
    pub(super) async fn settle(self: &Arc<Lifecycle>, name: &str, memory: &mut Memory, cause: Cause) {
        self.read_notes(name, memory).await;
        self.settle_versions(name, memory, cause).await;
        self.save_failures(name, memory).await;
        self.announce(name, memory);
    }

    /// Says in the log, once, that a version which was published is not served, and why.
    fn announce(&self, name: &str, memory: &mut Memory) {
        let Ok(status) = self.router.status(name) else { return };
        let Some(newest) = status.versions.last().filter(|newest| newest.version > memory.announced) else { return };
        if matches!(newest.idle, Some(IdleReason::NotPromoted { .. } | IdleReason::ModelUnloaded)) {
            memory.announced = newest.version;
            let measured = newest.origin.as_ref().map(Origin::measured).unwrap_or_default();
            let reason = &newest.reason;
            tracing::info!(model = name, version = newest.version, measured, reason, "stored, and not served");
        }
    }

    async fn settle_versions(self: &Arc<Lifecycle>, name: &str, memory: &mut Memory, cause: Cause) {
        let versions = self.versions(name);
        if memory.plan.forget_missing(|version| versions.contains_key(&version)) {
            tracing::info!(model = name, "what pointed to versions that are gone is forgotten");
            self.save_plan(name, memory).await;
        }
        self.instruct(name, memory);
        let rest = self.router.status(name).map(|status| status.rest).unwrap_or_default();
        if memory.plan.unloaded {
            return self.put_down(name, memory, Rest::Unloaded, "UNLOADED");
        }
        if rest != Rest::Awake && !cause.wakes {
            return;
        }
        if let Some(ensemble) = memory.settings.ensemble.clone() {
            return self.settle_ensemble(name, memory, &ensemble, cause);
        }
        let before = self.router.serving(name).map(|serving| serving.version);
        let (default, kind) = match memory.plan.fixed(self.follow) {
            Some(version) => {
                let kind = self.up(name, version, &versions, memory).await;
                (kind.is_some().then_some(version), kind.flatten())
            }
            None if self.follow == Follow::Promoted => (None, None),
            None => self.newest(name, &versions, memory).await,
        };
        // What cannot come up leaves in service what is.
        let default = default.or(before.filter(|version| self.router.ready(name, *version).is_some()));
        let mut keep: BTreeSet<u64> = default.into_iter().collect();
        let needed = memory.plan.needed();
        memory.on_demand.retain(|version| !needed.contains(version) && default != Some(*version));
        for version in needed.into_iter().chain(memory.on_demand.clone()) {
            if self.up(name, version, &versions, memory).await.is_some() {
                keep.insert(version);
            }
        }
        memory.up.retain(|version, _| keep.contains(version));
        let swap = (default != before).then(|| Swap {
            at_ms: self.clock.now_ms(),
            from: before,
            to: default,
            kind: kind.map_or(if default.is_none() { "unload" } else { "alias" }, Kind::name),
            reason: cause.reason,
            seconds: cause.began.elapsed().as_secs_f64(),
        });
        let swapped = swap.is_some();
        self.log_swap(name, swap.as_ref());
        self.router.settle(name, default, &keep, swap);
        self.router.change(name, |model| model.rest = Rest::Awake);
        if swapped {
            memory.woken = Some(Instant::now());
            self.remember_default(name, memory, before.filter(|_| cause.reason != "ROLLED_BACK"), default).await;
        }
        self.make_room(name, memory);
    }

    /// Keeps in mind, beyond this server's life, which version is the default now, and which was it before.
    async fn remember_default(
        self: &Arc<Lifecycle>,
        name: &str,
        memory: &mut Memory,
        before: Option<u64>,
        default: Option<u64>,
    ) {
        let plan = memory.plan.clone();
        before.into_iter().for_each(|before| memory.plan.remember(before));
        memory.plan.last_default = default.or(memory.plan.last_default);
        if memory.plan != plan {
            self.save_plan(name, memory).await;
            self.instruct(name, memory);
        }
    }

    /// Says in the log what the new default's training measured beside the old one's.
    fn log_swap(&self, name: &str, swap: Option<&Swap>) {
        let Some(Swap { from: Some(from), to: Some(to), reason, .. }) = swap else { return };
        let (Some(old), Some(new)) = (self.router.ready(name, *from), self.router.ready(name, *to)) else { return };
        let (measured, before) = (new.origin.measured(), old.origin.measured());
        if new.origin.is_less_accurate_than(&old.origin) {
            tracing::warn!(
                model = name,
                version = to,
                measured,
                replaced = from,
                before,
                reason,
                "the new default version is less accurate than the one that it replaces; `saggar models rollback` goes back"
            );
        } else {
            tracing::info!(
                model = name,
                version = to,
                measured,
                replaced = from,
                before,
                reason,
                "new default version"
            );
        }
    }

    /// Has requests served as it was decided.
    pub(super) fn instruct(self: &Arc<Lifecycle>, name: &str, memory: &Memory) {
        self.router.instruct(name, &memory.plan, &memory.settings, self.follow);
    }

    /// Brings up the newest version of a model that can be, unless that one is up already. Gives it, and how it came up.
    async fn newest(
        self: &Arc<Lifecycle>,
        name: &str,
        versions: &BTreeMap<u64, OnDisk>,
        memory: &mut Memory,
    ) -> (Option<u64>, Option<Kind>) {
        // As long as its directory is there, nothing older than what serves is of interest.
        let serving = self.router.serving(name).map(|serving| serving.version);
        let oldest = serving.filter(|version| versions.contains_key(version)).unwrap_or(0);
        let mut tries = 0;
        for (&version, on_disk) in versions.range(oldest..).rev() {
            let is_up = memory.up.get(&version) == Some(&on_disk.fingerprint);
            if !is_up && (!self.can_try(version, on_disk, memory) || tries == LOAD_TRIES_MAX) {
                continue;
            }
            tries += 1;
            if let Some(kind) = self.up(name, version, versions, memory).await {
                return (Some(version), kind);
            }
        }
        (None, None)
    }

    fn can_try(&self, version: u64, on_disk: &OnDisk, memory: &Memory) -> bool {
        let refused = memory.refused.get(&version).is_some_and(|(then, _)| *then == on_disk.fingerprint);
        !refused && on_disk.found.state == FoundState::Complete
    }

    /// Sees to it that a version is up with the files it has now. None where it cannot be; how it came up where it was not.
    async fn up(
        self: &Arc<Lifecycle>,
        name: &str,
        version: u64,
        versions: &BTreeMap<u64, OnDisk>,
        memory: &mut Memory,
    ) -> Option<Option<Kind>> {
        let ready = self.router.ready(name, version);
        let Some(on_disk) = versions.get(&version) else { return ready.map(|_| None) };
        if memory.up.get(&version) == Some(&on_disk.fingerprint) && ready.is_some() {
            return Some(None);
        }
        if !self.can_try(version, on_disk, memory) {
            // One that serves does so until there is something to take its place.
            return ready.map(|_| None);
        }
        match self.bring_up(name, version, on_disk, memory).await {
            Some(kind) => Some(Some(kind)),
            None => ready.map(|_| None),
        }
    }

    /// Brings a version up. None where that fails, which is remembered.
    async fn bring_up(
        self: &Arc<Lifecycle>,
        name: &str,
        version: u64,
        on_disk: &OnDisk,
        memory: &mut Memory,
    ) -> Option<Kind> {
        let bring_up = BringUp {
            host: Arc::clone(&self.host),
            models: self.models.clone(),
            metrics: Arc::clone(&self.metrics),
            model: name.to_owned(),
            dir: on_disk.found.dir.clone(),
            settings: memory.settings.clone(),
        };
        let load = async {
            let began = Instant::now();
            self.router.loading(name, Some(version));
            tracing::info!(model = name, version, "loading");
            let mut result = load(bring_up.clone()).await;
            while matches!(&result, Err(error) if error.reason() == "OUT_OF_MEMORY")
                && self.evict_one(name, memory).await
            {
                result = load(bring_up.clone()).await;
            }
            self.router.loading(name, None);
            (result, began)
        };
        let (result, began) = self.loads.run(load).await?;
        match result {
            Ok((origin, loaded)) => {
                let (kind, device, weights) = (loaded.kind, loaded.device.clone(), origin.weights);
                self.router.add(bring_up.serving(version, origin, loaded));
                memory.up.insert(version, on_disk.fingerprint);
                memory.refused.remove(&version);
                memory.recalled.remove(&version);
                let families = &self.metrics.families;
                families.model_setups.with_label_values(&[name, &version.to_string()]).inc();
                self.router.reloaded(name, [kind.name(), "ok", ""]);
                let seconds = began.elapsed().as_secs_f64();
                families.model_swap_duration.with_label_values(&[name]).observe(seconds);
                tracing::info!(model = name, version, kind = kind.name(), %weights, device, seconds, "version is ready");
                Some(kind)
            }
            // Removed a moment ago: the next look finds what there is.
            Err(LoadError::Files(ModelError::NotFound { .. })) => None,
            Err(error) => {
                self.refuse(name, version, on_disk, memory, &error);
                None
            }
        }
    }

    fn refuse(&self, name: &str, version: u64, on_disk: &OnDisk, memory: &mut Memory, error: &LoadError) {
        let reason = format!("{}: {}", error.reason(), without_dir(&error.to_string(), &on_disk.found));
        let result = if error.is_rejection() { "rejected" } else { "failed" };
        self.router.reloaded(name, ["full", result, error.reason()]);
        tracing::warn!(model = name, version, reason, "version refused; what served before goes on serving");
        memory.refused.insert(version, (on_disk.fingerprint, reason.clone()));
        self.router.failed(name, version, reason);
    }
}
