//! From a model's name to the version that answers. Swapping is one assignment: every request gets the old version or
//! the new one whole, and the old one is freed when its last request is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use saggar_metrics::Metrics;

use super::series::Series;
use super::version::{Lease, Origin, Serving, VersionState};
use crate::error::ApiError;
use crate::limits::PREDICTIONS_MAX;
use crate::predict::reference::{Reference, Which};

/// A version whose files were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where it comes from, as far as its manifest can be read.
    pub origin: Option<Origin>,
    /// Why it cannot be loaded, or not yet.
    pub reason: String,
    /// Whether it was tried.
    pub failed: bool,
}

/// A version as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionStatus {
    /// Its number.
    pub version: u64,
    /// Where it stands.
    pub state: VersionState,
    /// Why, where there is something to explain.
    pub reason: String,
    /// Where it comes from, as far as that is known.
    pub origin: Option<Origin>,
}

/// A model as clients see it.
#[derive(Clone, Debug)]
pub struct ModelStatus {
    /// Its name.
    pub name: String,
    /// The version that serves.
    pub serving: Option<Arc<Serving>>,
    /// Every version that is there, oldest first.
    pub versions: Vec<VersionStatus>,
}

#[derive(Debug, Default)]
struct Model {
    serving: Option<Arc<Serving>>,
    loading: Option<u64>,
    draining: Vec<u64>,
    listed: BTreeMap<u64, Listed>,
}

/// All models.
#[derive(Debug)]
pub struct ModelRouter {
    models: RwLock<BTreeMap<String, Model>>,
    series: Series,
}

impl ModelRouter {
    /// A router without models.
    pub fn new(metrics: Arc<Metrics>) -> ModelRouter {
        ModelRouter { models: RwLock::default(), series: Series::new(metrics) }
    }

    /// The version for `reference`; none means the default model, which is the one whose serving version was published
    /// last.
    ///
    /// # Errors
    /// `NoModel`; `VersionNotServing`; `NotReady`; `NothingReady`; `Parameter`.
    pub fn find(&self, reference: Option<&Reference>) -> Result<Arc<Serving>, ApiError> {
        let models = self.read();
        let Some(reference) = reference else {
            let serving = models.values().filter_map(|model| model.serving.as_ref());
            return serving.max_by_key(|s| s.origin.created_ms).cloned().ok_or(ApiError::NothingReady);
        };
        let Reference { model: name, which } = reference;
        let Some(model) = models.get(name) else {
            let known = models.keys().cloned().collect();
            return Err(ApiError::NoModel { name: name.chars().take(80).collect(), known });
        };
        let serving = model.serving.as_ref();
        match (serving, which) {
            (Some(serving), Which::Default) => Ok(Arc::clone(serving)),
            (Some(serving), Which::Version(version)) if serving.version == *version => Ok(Arc::clone(serving)),
            (None, Which::Default) => Err(ApiError::NotReady { model: name.to_owned(), reason: model.why_not_ready() }),
            (_, Which::Version(version)) => Err(ApiError::VersionNotServing {
                model: name.to_owned(),
                version: *version,
                state: model.state(*version).map_or("unknown", VersionState::name),
                serving: serving.map(|serving| serving.version),
            }),
            (_, Which::Alias(alias)) => Err(ApiError::NotFound {
                kind: "alias",
                name: format!("{name}@{alias}"),
                hint: format!("GET /api/v1/models/{name} shows the aliases"),
            }),
        }
    }

    /// A place in the queue of the version for `reference`.
    ///
    /// # Errors
    /// As [`ModelRouter::find`]; `QueueFull`.
    pub fn lease(&self, reference: Option<&Reference>) -> Result<Lease, ApiError> {
        loop {
            let serving = self.find(reference)?;
            if let Some(lease) = serving.lease() {
                return Ok(lease);
            }
            // A version that was swapped out a moment ago lets nobody in either, and then there is another one.
            if Arc::ptr_eq(&serving, &self.find(reference)?) {
                return Err(ApiError::QueueFull { model: serving.model.clone(), waiting: PREDICTIONS_MAX });
            }
        }
    }

    /// Every model, by name.
    pub fn list(&self) -> Vec<ModelStatus> {
        self.read().iter().map(|(name, model)| model.status(name)).collect()
    }

    /// One model.
    ///
    /// # Errors
    /// `NoModel`.
    pub fn status(&self, name: &str) -> Result<ModelStatus, ApiError> {
        let models = self.read();
        let known = || models.keys().cloned().collect();
        let model = models.get(name).ok_or_else(|| ApiError::NoModel { name: name.to_owned(), known: known() })?;
        Ok(model.status(name))
    }

    /// The version of a model that serves.
    pub fn serving(&self, name: &str) -> Option<Arc<Serving>> {
        self.read().get(name)?.serving.clone()
    }

    /// Takes over what was found on disk: the versions of every model. A model of which nothing is left is unloaded.
    pub(super) fn describe(self: &Arc<ModelRouter>, found: BTreeMap<String, BTreeMap<u64, Listed>>) {
        let mut models = self.write();
        let known: BTreeSet<String> = models.keys().chain(found.keys()).cloned().collect();
        let mut found = found;
        for name in known {
            let model = models.entry(name.clone()).or_default();
            model.listed = found.remove(&name).unwrap_or_default();
            if model.listed.is_empty()
                && let Some(old) = model.serving.take()
            {
                tracing::info!(model = name, version = old.version, "model removed");
                model.draining.push(old.version);
                self.drain(old);
            }
            self.series.show(&name, &model.states());
            if model.is_gone() {
                models.remove(&name);
                self.series.removed(&name);
            }
        }
    }

    /// Says that a version is being brought up, or none is any more.
    pub(super) fn loading(&self, name: &str, version: Option<u64>) {
        let mut models = self.write();
        let model = models.entry(name.to_owned()).or_default();
        model.loading = version;
        self.series.show(name, &model.states());
    }

    /// Records why a version could not be brought up.
    pub(super) fn failed(&self, name: &str, version: u64, reason: String) {
        let mut models = self.write();
        let Some(model) = models.get_mut(name) else { return };
        if let Some(listed) = model.listed.get_mut(&version) {
            listed.failed = true;
            listed.reason = reason;
        }
        self.series.show(name, &model.states());
    }

    /// Counts an attempt at a version: kind, result and reason.
    pub(super) fn reloaded(&self, name: &str, labels: [&'static str; 3]) {
        self.series.reloaded(name, labels);
    }

    /// Has `new` answer from now on; what answered before drains and is freed.
    pub(super) fn swap(self: &Arc<ModelRouter>, new: Serving) {
        let (name, version) = (new.model.clone(), new.version);
        let mut models = self.write();
        let model = models.entry(name.clone()).or_default();
        let old = model.serving.replace(Arc::new(new));
        if let Some(old) = old {
            model.draining.push(old.version);
            self.drain(old);
        }
        self.series.serves(&name, version);
        self.series.show(&name, &model.states());
    }

    /// Waits for the version's last request and frees it, on a thread that may take long over it.
    fn drain(self: &Arc<ModelRouter>, old: Arc<Serving>) {
        let router = Arc::clone(self);
        tokio::spawn(async move {
            old.drained().await;
            let (name, version) = (old.model.clone(), old.version);
            if tokio::task::spawn_blocking(move || drop(old)).await.is_err() {
                tracing::error!(model = name, version, "freeing the version panicked");
            }
            router.drained(&name, version);
        });
    }

    fn drained(&self, name: &str, version: u64) {
        let mut models = self.write();
        if let Some(model) = models.get_mut(name) {
            if let Some(at) = model.draining.iter().position(|&draining| draining == version) {
                model.draining.remove(at);
            }
            self.series.show(name, &model.states());
            let serves = model.serving.as_ref().is_some_and(|serving| serving.version == version);
            if !serves {
                self.series.unloaded(name, version);
            }
            if model.is_gone() {
                models.remove(name);
                self.series.removed(name);
            }
        }
        tracing::info!(model = name, version, "version unloaded");
    }

    // A panic while the lock is held leaves the map whole: every change is one assignment.
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Model>> {
        self.models.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Model>> {
        self.models.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Model {
    fn state(&self, version: u64) -> Option<VersionState> {
        if self.serving.as_ref().is_some_and(|serving| serving.version == version) {
            return Some(VersionState::Ready);
        }
        if self.loading == Some(version) {
            return Some(VersionState::Loading);
        }
        if self.draining.contains(&version) {
            return Some(VersionState::Draining);
        }
        let state = |listed: &Listed| if listed.failed { VersionState::Failed } else { VersionState::Unloaded };
        self.listed.get(&version).map(state)
    }

    fn states(&self) -> BTreeMap<u64, VersionState> {
        let others = self.draining.iter().copied().chain(self.serving.as_ref().map(|serving| serving.version));
        let versions: BTreeSet<u64> = self.listed.keys().copied().chain(others).chain(self.loading).collect();
        versions.into_iter().filter_map(|version| Some((version, self.state(version)?))).collect()
    }

    fn status(&self, name: &str) -> ModelStatus {
        let version = |(version, state)| {
            let listed = self.listed.get(&version);
            let serving = self.serving.as_ref().filter(|serving| serving.version == version);
            VersionStatus {
                version,
                state,
                reason: listed.map(|listed| listed.reason.clone()).unwrap_or_default(),
                origin: serving.map(|s| s.origin.clone()).or_else(|| listed?.origin.clone()),
            }
        };
        let versions = self.states().into_iter().map(version).collect();
        ModelStatus { name: name.to_owned(), serving: self.serving.clone(), versions }
    }

    fn why_not_ready(&self) -> String {
        if let Some(version) = self.loading {
            return format!("version {version} is LOADING");
        }
        let newest = self.listed.iter().next_back();
        newest.map_or_else(
            || "it was removed".to_owned(),
            |(version, listed)| {
                let state = if listed.failed { "FAILED" } else { "waiting" };
                let separator = if listed.reason.is_empty() { "" } else { ": " };
                format!("version {version} is {state}{separator}{}", listed.reason)
            },
        )
    }

    fn is_gone(&self) -> bool {
        self.listed.is_empty() && self.serving.is_none() && self.draining.is_empty() && self.loading.is_none()
    }
}
