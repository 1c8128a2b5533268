//! From what a request names to the version that answers. Swapping is one assignment: every request gets the old version
//! or the new one whole, and the old one is freed when its last request is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use saggar_metrics::Metrics;
use tokio::sync::{mpsc, watch};
use tokio::time::{timeout, timeout_at};

use super::idle::Follow;
use super::on_demand::Wake;
use super::plan::Plan;
use super::series::Series;
use super::settings::{KeepAlive, Settings};
use super::shadow::Shadow;
use super::state::{Listed, Model, ModelStatus, Rest, Swap};
use super::version::{Lease, Serving, VersionState};
use crate::error::ApiError;
use crate::limits::{DEADLINE_MAX, WAKES_WAITING_MAX};
use crate::memory::MemoryCharge;
use crate::predict::decode::Inputs;
use crate::predict::reference::{Reference, Which};

/// All models.
#[derive(Debug)]
pub struct ModelRouter {
    models: RwLock<BTreeMap<String, Model>>,
    series: Series,
    metrics: Arc<Metrics>,
    /// Counts changes, for those who wait for one.
    changes: watch::Sender<u64>,
    wakes: mpsc::Sender<Wake>,
    /// Taken by the one that wakes models.
    woken: std::sync::Mutex<Option<mpsc::Receiver<Wake>>>,
    draws: AtomicU64,
    /// Whether a request for a version that is stored has it loaded.
    loads_on_demand: bool,
}

/// Where a request goes.
enum Way {
    To(Arc<Serving>),
    /// The model sleeps, or is being woken.
    Wake(String),
    /// The version is stored and not up.
    Load(String, u64),
}

impl ModelRouter {
    /// A router without models.
    pub fn new(metrics: Arc<Metrics>) -> ModelRouter {
        let (wakes, woken) = mpsc::channel(WAKES_WAITING_MAX);
        ModelRouter {
            models: RwLock::default(),
            series: Series::new(Arc::clone(&metrics)),
            metrics,
            changes: watch::channel(0).0,
            wakes,
            woken: std::sync::Mutex::new(Some(woken)),
            draws: AtomicU64::new(0),
            loads_on_demand: false,
        }
    }

    /// Has a request for a version that is stored, and not up, wait until it is loaded.
    #[must_use]
    pub fn loading_on_demand(self) -> ModelRouter {
        ModelRouter { loads_on_demand: true, ..self }
    }

    /// The names of models that requests wait for; none where somebody else has them already.
    pub(super) fn wakes(&self) -> Option<mpsc::Receiver<Wake>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether there is such a model and version, awake or not: what can be said before a request's body is read.
    ///
    /// # Errors
    /// `NoModel`; `NotFound` for an alias; `VersionNotServing`; `NotReady`; `NothingReady`.
    pub fn check(&self, reference: Option<&Reference>) -> Result<(), ApiError> {
        self.way(reference).map(|_| ())
    }

    /// The version for `reference`, as long as it is awake; none means the default model, which is the one that says so,
    /// or else the one whose default version was published last.
    ///
    /// # Errors
    /// `NoModel`; `NotFound` for an alias; `VersionNotServing`; `NotReady`; `NothingReady`.
    pub fn find(&self, reference: Option<&Reference>) -> Result<Arc<Serving>, ApiError> {
        match self.way(reference)? {
            Way::To(serving) => Ok(serving),
            Way::Wake(model) => {
                Err(ApiError::NotReady { model, reason: "it sleeps; a prediction wakes it".to_owned() })
            }
            Way::Load(model, version) => Err(self.not_serving(model, version)),
        }
    }

    fn way(&self, reference: Option<&Reference>) -> Result<Way, ApiError> {
        let models = self.read();
        let Some(Reference { model: name, which }) = reference else {
            let named = models.iter().max_by_key(|(_, model)| (model.settings.default, model.published_ms()));
            // A model of which nothing can serve is nobody's default.
            let (name, model) =
                named.filter(|(_, model)| model.published_ms().is_some()).ok_or(ApiError::NothingReady)?;
            return self.way_to(name, model, &Which::Default);
        };
        let Some(model) = models.get(name) else {
            let known = models.keys().cloned().collect();
            return Err(ApiError::NoModel { name: name.chars().take(80).collect(), known });
        };
        self.way_to(name, model, which)
    }

    fn way_to(&self, name: &str, model: &Model, which: &Which) -> Result<Way, ApiError> {
        let version = match which {
            Which::Default => match self.drawn(model).or(model.default) {
                Some(version) => version,
                None if model.rest.wakes() => return Ok(Way::Wake(name.to_owned())),
                None => return Err(ApiError::NotReady { model: name.to_owned(), reason: model.why_not_ready(name) }),
            },
            Which::Version(version) => *version,
            Which::Alias(alias) => model.alias(alias).ok_or_else(|| ApiError::NotFound {
                kind: "alias",
                name: format!("{name}@{alias}"),
                hint: format!("GET /api/v1/models/{name} shows the aliases"),
            })?,
        };
        if let Some(serving) = model.ready.get(&version) {
            return Ok(Way::To(Arc::clone(serving)));
        }
        if model.rest.wakes() && model.wanted().contains(&version) {
            return Ok(Way::Wake(name.to_owned()));
        }
        if self.loads_on_demand && model.is_loadable(version) {
            return Ok(Way::Load(name.to_owned(), version));
        }
        Err(not_serving(name, model, version))
    }

    fn not_serving(&self, name: String, version: u64) -> ApiError {
        match self.read().get(&name) {
            Some(model) => not_serving(&name, model, version),
            None => ApiError::NoModel { name, known: Vec::new() },
        }
    }

    /// The version that a default request gets by the model's shares: over a hundred requests in a row, exactly those. None
    /// where there are no shares, or the version is not up: its requests go to the default.
    fn drawn(&self, model: &Model) -> Option<u64> {
        if model.plan.traffic.is_empty() {
            return None;
        }
        // 61 has no factor in common with 100: the shares are mixed, and each hundred is whole.
        let draw = (self.draws.fetch_add(1, Ordering::Relaxed) % 100) * 61 % 100;
        let mut below = 0;
        let mut shares = model.plan.traffic.iter();
        let (name, _) = shares.find(|(_, share)| {
            below += u64::from(**share);
            draw < below
        })?;
        let version = model.alias(name).or_else(|| name.parse().ok())?;
        model.ready.contains_key(&version).then_some(version)
    }

    /// A place in the queue of the version for `reference`. Waits until then where its model must be woken first.
    ///
    /// # Errors
    /// As [`ModelRouter::find`]; `QueueFull`; `NoTimeLeft`; `NotReady` where it does not wake in time.
    pub async fn lease(&self, reference: Option<&Reference>, until: Instant) -> Result<Lease, ApiError> {
        let mut changes = None;
        loop {
            let wake = match self.way(reference)? {
                Way::To(serving) => {
                    let model = serving.model.clone();
                    match serving.lease() {
                        Some(lease) => match serving.no_time_before(until) {
                            None => return Ok(lease),
                            Some(waiting) => return Err(ApiError::NoTimeLeft { model, waiting }),
                        },
                        None if self.is_current(&serving) => {
                            return Err(ApiError::QueueFull { model, waiting: serving.terms().capacity });
                        }
                        // One that was swapped out a moment ago lets nobody in, and then there is another one.
                        None => continue,
                    }
                }
                Way::Wake(model) => Wake { model, version: None },
                Way::Load(model, version) => Wake { model, version: Some(version) },
            };
            let Some(changes) = &mut changes else {
                // Subscribed before the next look: a change between the two is not missed.
                changes = Some(self.changes.subscribe());
                continue;
            };
            // A queue that is full of wakes holds one for this model, or will be asked again at the next change.
            let _ = self.wakes.try_send(wake.clone());
            if timeout_at(until.into(), changes.changed()).await.is_err() {
                let what = wake.version.map_or_else(|| "it".to_owned(), |version| format!("version {version}"));
                let reason = format!("{what} was still being loaded when the request's time was over");
                return Err(ApiError::NotReady { model: wake.model, reason });
            }
        }
    }

    fn is_current(&self, serving: &Arc<Serving>) -> bool {
        let models = self.read();
        let ready = models.get(&serving.model).and_then(|model| model.ready.get(&serving.version));
        ready.is_some_and(|ready| Arc::ptr_eq(ready, serving))
    }

    /// The version that is to repeat this prediction, if one is.
    pub(crate) fn shadow(&self, serving: &Arc<Serving>, inputs: &Inputs, charge: &MemoryCharge) -> Option<Shadow> {
        let models = self.read();
        let model = models.get(&serving.model)?;
        let plan = model.plan.shadow.as_ref()?;
        let draw = self.draws.fetch_add(1, Ordering::Relaxed) % 100 * 61 % 100;
        if draw >= u64::from(plan.percent) {
            return None;
        }
        let version = model.alias(&plan.to).or_else(|| plan.to.parse().ok())?;
        let shadow = model.ready.get(&version).filter(|_| version != serving.version)?;
        Shadow::of(shadow, inputs, charge.another(), &self.metrics)
    }

    /// Every model, by name.
    pub fn list(&self) -> Vec<ModelStatus> {
        self.read().iter().map(|(name, model)| model.status(name)).collect()
    }

    /// The models whose code runs now, and what for, to be logged.
    pub fn running(&self) -> Vec<String> {
        let mut running = Vec::new();
        for (name, model) in &*self.read() {
            if let Some(version) = model.loading {
                running.push(format!("version {version} of model {name} comes up"));
            }
            let busy = model.ready.iter().filter(|(_, serving)| serving.is_busy());
            running.extend(busy.map(|(version, _)| format!("version {version} of model {name} predicts")));
        }
        running
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

    /// The version of a model that default requests get.
    pub fn serving(&self, name: &str) -> Option<Arc<Serving>> {
        let models = self.read();
        let model = models.get(name)?;
        model.ready.get(&model.default?).cloned()
    }

    /// A version of a model, if it is ready.
    pub fn ready(&self, name: &str, version: u64) -> Option<Arc<Serving>> {
        self.read().get(name)?.ready.get(&version).cloned()
    }

    /// Every version that is ready.
    pub(super) fn all_ready(&self) -> Vec<Arc<Serving>> {
        self.read().values().flat_map(|model| model.ready.values().cloned()).collect()
    }

    /// Changes a model, and shows what became of it. One of which nothing is left goes.
    pub(super) fn change<T>(self: &Arc<ModelRouter>, name: &str, change: impl FnOnce(&mut Model) -> T) -> T {
        let mut models = self.write();
        let model = models.entry(name.to_owned()).or_default();
        let result = change(model);
        for serving in std::mem::take(&mut model.leaving) {
            model.draining.push(serving.version);
            self.drain(serving);
        }
        self.series.show(name, &model.states());
        if model.is_gone() {
            models.remove(name);
            self.series.removed(name);
        }
        drop(models);
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        result
    }

    /// Takes over what was found on disk: the versions of every model. A model of which nothing is left is unloaded.
    pub(super) fn describe(self: &Arc<ModelRouter>, found: BTreeMap<String, BTreeMap<u64, Listed>>) {
        let known: BTreeSet<String> = self.read().keys().chain(found.keys()).cloned().collect();
        let mut found = found;
        for name in known {
            let listed = found.remove(&name).unwrap_or_default();
            self.change(&name, |model| {
                model.listed = listed;
                if model.listed.is_empty() && !model.is_ensemble() && !model.ready.is_empty() {
                    tracing::info!(model = name, "model removed");
                    model.retire(|_| false);
                }
            });
        }
    }

    /// Says that a version is being brought up, or none is any more.
    pub(super) fn loading(self: &Arc<ModelRouter>, name: &str, version: Option<u64>) {
        self.change(name, |model| model.loading = version);
    }

    /// Records why a version could not be brought up.
    pub(super) fn failed(self: &Arc<ModelRouter>, name: &str, version: u64, reason: String) {
        self.change(name, |model| {
            if let Some(listed) = model.listed.get_mut(&version) {
                listed.failed = true;
                listed.reason = reason;
            }
        });
    }

    /// Counts an attempt at a version: kind, result and reason.
    pub(super) fn reloaded(&self, name: &str, labels: [&'static str; 3]) {
        self.series.reloaded(name, labels);
    }

    /// What users decided about the model, and how it is served, as far as requests are concerned.
    pub(super) fn instruct(self: &Arc<ModelRouter>, name: &str, plan: &Plan, settings: &Settings, follow: Follow) {
        self.change(name, |model| {
            model.follow = follow;
            model.plan = plan.clone();
            model.settings = settings.clone();
        });
    }

    /// Has `new` answer from now on for its version; what answered for it before drains and is freed.
    pub(super) fn add(self: &Arc<ModelRouter>, new: Serving) {
        let (name, version) = (new.model.clone(), new.version);
        self.series.serves(&name, version);
        self.change(&name, |model| {
            model.rest = Rest::Awake;
            if let Some(old) = model.ready.insert(version, Arc::new(new)) {
                model.leaving.push(old);
            }
        });
    }

    /// Makes a version that is ready the default, and lets go of those that nothing needs.
    pub(super) fn settle(
        self: &Arc<ModelRouter>,
        name: &str,
        default: Option<u64>,
        keep: &BTreeSet<u64>,
        swap: Option<Swap>,
    ) {
        self.change(name, |model| {
            model.default = default.filter(|version| model.ready.contains_key(version));
            model.retire(|version| keep.contains(&version));
            model.last_swap = swap.or(model.last_swap.take());
        });
    }

    /// A request says how long its model is to be kept when nobody asks for it.
    pub(crate) fn keep(self: &Arc<ModelRouter>, name: &str, keep: KeepAlive) {
        if self.read().get(name).is_some_and(|model| model.asked != Some(keep)) {
            self.change(name, |model| model.asked = Some(keep));
        }
    }

    /// Waits until nothing is draining any more.
    pub(super) async fn settled(&self) {
        self.wait_until(|models| models.values().all(|model| model.draining.is_empty())).await;
    }

    /// Waits until a version of the model, or none of them, is draining any more.
    pub(super) async fn drained_of(&self, name: &str, version: Option<u64>) {
        let drains = |model: &Model| match version {
            Some(version) => model.draining.contains(&version),
            None => !model.draining.is_empty(),
        };
        self.wait_until(|models| !models.get(name).is_some_and(drains)).await;
    }

    /// Waits for it, at most as long as any request may take.
    async fn wait_until(&self, done: impl Fn(&BTreeMap<String, Model>) -> bool) {
        let mut changes = self.changes.subscribe();
        let wait = async {
            while !done(&self.read()) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(DEADLINE_MAX, wait).await;
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

    fn drained(self: &Arc<ModelRouter>, name: &str, version: u64) {
        self.change(name, |model| {
            if let Some(at) = model.draining.iter().position(|&draining| draining == version) {
                model.draining.remove(at);
            }
            if !model.ready.contains_key(&version) && !model.draining.contains(&version) {
                self.series.unloaded(name, version);
            }
        });
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

fn not_serving(name: &str, model: &Model, version: u64) -> ApiError {
    ApiError::VersionNotServing {
        model: name.to_owned(),
        version,
        state: model.state(version).map_or("unknown", VersionState::name),
        serving: model.default,
    }
}
