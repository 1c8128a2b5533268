//! Routes a request to the version that answers it. Replacing a version is one assignment: every request is served by
//! either the old or the new version, and the old one is freed when its last request is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use saggar_metrics::MetricsRegistry;
use tokio::sync::{mpsc, watch};
use tokio::time::{timeout, timeout_at};

use crate::desired_state::DesiredState;
use crate::error::ServingError;
use crate::limits::{DEADLINE_MAX, WAKE_REQUESTS_MAX};
use crate::live_version::{LiveVersion, VersionLease};
use crate::metrics::model_metrics::ModelMetrics;
use crate::model_config::{KeepAlive, ModelConfig};
use crate::model_reference::{ModelReference, VersionSelector};
use crate::model_state::{ListedVersion, ModelState, ModelStatus, Residency, VersionSwap};
use crate::prediction::prediction_inputs::PredictionInputs;
use crate::prediction::shadow::ShadowPrediction;
use crate::request_memory::MemoryCharge;
use crate::unserved_reason::FollowPolicy;

/// The state of all models, and the routing of requests.
#[derive(Debug)]
pub struct ModelRouter {
    models: RwLock<BTreeMap<String, ModelState>>,
    model_metrics: ModelMetrics,
    metrics: Arc<MetricsRegistry>,
    /// A change counter, for tasks that wait for a change.
    changes: watch::Sender<u64>,
    wake_requests: mpsc::Sender<WakeRequest>,
    /// The receiver of wake requests, until the residency loop takes it.
    wake_receiver: parking_lot::Mutex<Option<mpsc::Receiver<WakeRequest>>>,
    draw_count: AtomicU64,
    /// Whether a request for a stored version loads it.
    loads_on_demand: bool,
}

/// The model or version that a request waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WakeRequest {
    /// The model.
    pub(crate) model: String,
    /// The version that the request named, or `None` for the default.
    pub(crate) version: Option<u64>,
}

/// The target of a request.
enum RouteTarget {
    Live(Arc<LiveVersion>),
    /// The model is asleep or being woken.
    Wake(String),
    /// The version is stored and not loaded.
    Load(String, u64),
}

impl ModelRouter {
    /// Creates a router without models.
    pub fn new(metrics: Arc<MetricsRegistry>) -> ModelRouter {
        let (wakes, woken) = mpsc::channel(WAKE_REQUESTS_MAX);
        ModelRouter {
            models: RwLock::default(),
            model_metrics: ModelMetrics::new(Arc::clone(&metrics)),
            metrics,
            changes: watch::channel(0).0,
            wake_requests: wakes,
            wake_receiver: parking_lot::Mutex::new(Some(woken)),
            draw_count: AtomicU64::new(0),
            loads_on_demand: false,
        }
    }

    /// Enables on-demand loading: a request for a version that is only stored waits until it is loaded.
    #[must_use]
    pub fn with_on_demand_loading(self) -> ModelRouter {
        ModelRouter { loads_on_demand: true, ..self }
    }

    /// Returns the receiver of wake requests, or `None` if it was taken already.
    pub(crate) fn take_wake_receiver(&self) -> Option<mpsc::Receiver<WakeRequest>> {
        self.wake_receiver.lock().take()
    }

    /// Checks that the model and version exist, awake or not. This can be decided before a request's body is read.
    ///
    /// # Errors
    /// Returns `NoModel`, `NoAlias`, `VersionNotServing`, `NotReady`, or `NothingReady`.
    pub fn check(&self, reference: Option<&ModelReference>) -> Result<(), ServingError> {
        self.route(reference).map(|_| ())
    }

    /// Returns the version for `reference` if it is loaded. `None` refers to the default model: the one whose
    /// configuration says so, or else the one whose default version was published last.
    ///
    /// # Errors
    /// Returns `NoModel`, `NoAlias`, `VersionNotServing`, `NotReady`, or `NothingReady`.
    pub fn find_live(&self, reference: Option<&ModelReference>) -> Result<Arc<LiveVersion>, ServingError> {
        match self.route(reference)? {
            RouteTarget::Live(serving) => Ok(serving),
            RouteTarget::Wake(model) => {
                Err(ServingError::NotReady { model, reason: "it sleeps; a prediction wakes it".to_owned() })
            }
            RouteTarget::Load(model, version) => Err(self.not_serving_error(model, version)),
        }
    }

    fn route(&self, reference: Option<&ModelReference>) -> Result<RouteTarget, ServingError> {
        let models = self.read_models();
        let Some(ModelReference { model: name, version: which }) = reference else {
            let named = models.iter().max_by_key(|(_, model)| (model.config.default, model.published_ms()));
            // A model without a version that can serve cannot be the default.
            let (name, model) =
                named.filter(|(_, model)| model.published_ms().is_some()).ok_or(ServingError::NothingReady)?;
            return self.route_to_version(name, model, &VersionSelector::Default);
        };
        let Some(model) = models.get(name) else {
            let known = models.keys().cloned().collect();
            return Err(ServingError::NoModel { name: name.chars().take(80).collect(), known });
        };
        self.route_to_version(name, model, which)
    }

    fn route_to_version(
        &self,
        name: &str,
        model: &ModelState,
        which: &VersionSelector,
    ) -> Result<RouteTarget, ServingError> {
        let version = match which {
            VersionSelector::Default => match self.draw_traffic_version(model).or(model.default) {
                Some(version) => version,
                None if model.residency.wakes_on_request() => return Ok(RouteTarget::Wake(name.to_owned())),
                None => {
                    return Err(ServingError::NotReady {
                        model: name.to_owned(),
                        reason: model.not_ready_reason(name),
                    });
                }
            },
            VersionSelector::Version(version) => *version,
            VersionSelector::Alias(alias) => model.resolve_alias(alias).ok_or_else(|| ServingError::NoAlias {
                model: name.to_owned(),
                alias: alias.clone(),
                hint: format!("GET /api/v1/models/{name} shows the aliases"),
            })?,
        };
        if let Some(serving) = model.ready.get(&version) {
            return Ok(RouteTarget::Live(Arc::clone(serving)));
        }
        if model.residency.wakes_on_request() && model.desired_versions().contains(&version) {
            return Ok(RouteTarget::Wake(name.to_owned()));
        }
        if self.loads_on_demand && model.is_loadable(version) {
            return Ok(RouteTarget::Load(name.to_owned(), version));
        }
        Err(version_not_serving(name, model, version))
    }

    fn not_serving_error(&self, name: String, version: u64) -> ServingError {
        match self.read_models().get(&name) {
            Some(model) => version_not_serving(&name, model, version),
            None => ServingError::NoModel { name, known: Vec::new() },
        }
    }

    /// Returns the version that a default request gets by the model's traffic shares, which are exact over any hundred
    /// consecutive requests. Returns `None` if there are no shares or the version is not loaded, so that the request
    /// goes to the default.
    fn draw_traffic_version(&self, model: &ModelState) -> Option<u64> {
        if model.desired.traffic.is_empty() {
            return None;
        }
        // 61 and 100 are coprime: the versions are interleaved, and each hundred is complete.
        let draw = (self.draw_count.fetch_add(1, Ordering::Relaxed) % 100) * 61 % 100;
        let mut below = 0;
        let mut shares = model.desired.traffic.iter();
        let (name, _) = shares.find(|(_, share)| {
            below += u64::from(**share);
            draw < below
        })?;
        let version = model.resolve_alias(name).or_else(|| name.parse().ok())?;
        model.ready.contains_key(&version).then_some(version)
    }

    /// Leases the version for `reference`. Waits until the time `until` if its model must be woken first.
    ///
    /// # Errors
    /// Returns the errors of [`ModelRouter::find_live`], `QueueFull`, `NoTimeLeft`, or `NotReady` if it does not wake
    /// in time.
    pub async fn lease(
        &self,
        reference: Option<&ModelReference>,
        until: Instant,
    ) -> Result<VersionLease, ServingError> {
        let mut changes = None;
        loop {
            let wake = match self.route(reference)? {
                RouteTarget::Live(serving) => {
                    let model = serving.model.clone();
                    match serving.try_lease() {
                        Some(lease) => match serving.queue_length_if_late(until) {
                            None => return Ok(lease),
                            Some(waiting) => return Err(ServingError::NoTimeLeft { model, waiting }),
                        },
                        None if self.is_current(&serving) => {
                            return Err(ServingError::QueueFull { model, waiting: serving.policy().capacity });
                        }
                        // The version was just replaced and grants no more leases. The next attempt finds the new one.
                        None => continue,
                    }
                }
                RouteTarget::Wake(model) => WakeRequest { model, version: None },
                RouteTarget::Load(model, version) => WakeRequest { model, version: Some(version) },
            };
            let Some(changes) = &mut changes else {
                // Subscribed before the next attempt, so that a change between the two is not missed.
                changes = Some(self.changes.subscribe());
                continue;
            };
            // If the channel is full, it contains a request for this model already, or the loop retries at the next
            // change.
            let _ = self.wake_requests.try_send(wake.clone());
            if timeout_at(until.into(), changes.changed()).await.is_err() {
                let what = wake.version.map_or_else(|| "it".to_owned(), |version| format!("version {version}"));
                let reason = format!("{what} was still being loaded when the request's time was over");
                return Err(ServingError::NotReady { model: wake.model, reason });
            }
        }
    }

    fn is_current(&self, serving: &Arc<LiveVersion>) -> bool {
        let models = self.read_models();
        let ready = models.get(&serving.model).and_then(|model| model.ready.get(&serving.version));
        ready.is_some_and(|ready| Arc::ptr_eq(ready, serving))
    }

    /// Returns the shadow prediction that repeats this one, if it was drawn for the shadow.
    pub(crate) fn draw_shadow(
        &self,
        serving: &Arc<LiveVersion>,
        inputs: &PredictionInputs,
        charge: &MemoryCharge,
    ) -> Option<ShadowPrediction> {
        let models = self.read_models();
        let model = models.get(&serving.model)?;
        let plan = model.desired.shadow.as_ref()?;
        let draw = self.draw_count.fetch_add(1, Ordering::Relaxed) % 100 * 61 % 100;
        if draw >= u64::from(plan.percent) {
            return None;
        }
        let version = model.resolve_alias(&plan.to).or_else(|| plan.to.parse().ok())?;
        let shadow = model.ready.get(&version).filter(|_| version != serving.version)?;
        ShadowPrediction::try_new(shadow, inputs, charge.empty_charge(), &self.metrics)
    }

    /// Returns the status of every model, ordered by name.
    pub fn list(&self) -> Vec<ModelStatus> {
        self.read_models().iter().map(|(name, model)| model.status(name)).collect()
    }

    /// Returns the models whose code runs now and what it does, for the log.
    pub fn running_models(&self) -> Vec<String> {
        let mut running = Vec::new();
        for (name, model) in &*self.read_models() {
            if let Some(version) = model.loading {
                running.push(format!("version {version} of model {name} is being loaded"));
            }
            let busy = model.ready.iter().filter(|(_, serving)| serving.is_busy());
            running.extend(busy.map(|(version, _)| format!("version {version} of model {name} predicts")));
        }
        running
    }

    /// Returns the status of one model.
    ///
    /// # Errors
    /// Returns `NoModel`.
    pub fn status(&self, name: &str) -> Result<ModelStatus, ServingError> {
        let models = self.read_models();
        let known = || models.keys().cloned().collect();
        let model = models.get(name).ok_or_else(|| ServingError::NoModel { name: name.to_owned(), known: known() })?;
        Ok(model.status(name))
    }

    /// Returns the version of a model that default requests get.
    pub fn default_version(&self, name: &str) -> Option<Arc<LiveVersion>> {
        let models = self.read_models();
        let model = models.get(name)?;
        model.ready.get(&model.default?).cloned()
    }

    /// Returns a version of a model if it is ready.
    pub fn ready_version(&self, name: &str, version: u64) -> Option<Arc<LiveVersion>> {
        self.read_models().get(name)?.ready.get(&version).cloned()
    }

    /// Returns every version that is ready.
    pub(crate) fn ready_versions(&self) -> Vec<Arc<LiveVersion>> {
        self.read_models().values().flat_map(|model| model.ready.values().cloned()).collect()
    }

    /// Changes a model, then updates its metrics and notifies waiters. A model that is empty afterwards is removed.
    pub(crate) fn update_model<T>(self: &Arc<ModelRouter>, name: &str, change: impl FnOnce(&mut ModelState) -> T) -> T {
        let mut models = self.write_models();
        let model = models.entry(name.to_owned()).or_default();
        let result = change(model);
        for serving in std::mem::take(&mut model.retired) {
            model.draining.push(serving.version);
            self.spawn_drain(serving);
        }
        self.model_metrics.set_version_states(name, &model.version_states());
        if model.is_empty() {
            models.remove(name);
            self.model_metrics.remove_model(name);
        }
        drop(models);
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        result
    }

    /// Replaces the listed versions of every model by those found on disk. A model without any is unloaded.
    pub(crate) fn set_listed_versions(self: &Arc<ModelRouter>, found: BTreeMap<String, BTreeMap<u64, ListedVersion>>) {
        let known: BTreeSet<String> = self.read_models().keys().chain(found.keys()).cloned().collect();
        let mut found = found;
        for name in known {
            let listed = found.remove(&name).unwrap_or_default();
            self.update_model(&name, |model| {
                model.listed = listed;
                if model.listed.is_empty() && !model.is_ensemble() && !model.ready.is_empty() {
                    tracing::info!(model = name, "model removed");
                    model.retire_except(|_| false);
                }
            });
        }
    }

    /// Sets the version that is being loaded, or `None`.
    pub(crate) fn set_loading(self: &Arc<ModelRouter>, name: &str, version: Option<u64>) {
        self.update_model(name, |model| model.loading = version);
    }

    /// Records why a version could not be loaded.
    pub(crate) fn set_load_failed(self: &Arc<ModelRouter>, name: &str, version: u64, reason: String) {
        self.update_model(name, |model| {
            if let Some(listed) = model.listed.get_mut(&version) {
                listed.failed = true;
                listed.reason = reason;
            }
        });
    }

    /// Counts an attempt to load a version: kind, result and reason.
    pub(crate) fn count_reload(&self, name: &str, labels: [&'static str; 3]) {
        self.model_metrics.count_reload(name, labels);
    }

    /// Sets the desired state and the configuration of a model for the routing of requests.
    pub(crate) fn set_desired_state(
        self: &Arc<ModelRouter>,
        name: &str,
        plan: &DesiredState,
        settings: &ModelConfig,
        follow: FollowPolicy,
    ) {
        self.update_model(name, |model| {
            model.follow = follow;
            model.desired = plan.clone();
            model.config = settings.clone();
        });
    }

    /// Puts `new` into service. A previous instance of the same version drains and is freed.
    pub(crate) fn add_version(self: &Arc<ModelRouter>, new: LiveVersion) {
        let (name, version) = (new.model.clone(), new.version);
        self.model_metrics.keep_version_series(&name, version);
        self.update_model(&name, |model| {
            model.residency = Residency::Awake;
            if let Some(old) = model.ready.insert(version, Arc::new(new)) {
                model.retired.push(old);
            }
        });
    }

    /// Makes a version that is ready the default, and retires those that are no longer needed.
    pub(crate) fn set_default_version(
        self: &Arc<ModelRouter>,
        name: &str,
        default: Option<u64>,
        keep: &BTreeSet<u64>,
        swap: Option<VersionSwap>,
    ) {
        self.update_model(name, |model| {
            model.default = default.filter(|version| model.ready.contains_key(version));
            model.retire_except(|version| keep.contains(&version));
            model.last_swap = swap.or(model.last_swap.take());
        });
    }

    /// Sets the keep-alive time of a model as a request asked for.
    pub fn set_keep_alive(self: &Arc<ModelRouter>, name: &str, keep: KeepAlive) {
        if self.read_models().get(name).is_some_and(|model| model.requested_keep_alive != Some(keep)) {
            self.update_model(name, |model| model.requested_keep_alive = Some(keep));
        }
    }

    /// Waits until no version is draining.
    pub(crate) async fn wait_until_drained(&self) {
        self.wait_until(|models| models.values().all(|model| model.draining.is_empty())).await;
    }

    /// Waits until the given version of the model is not draining, or none of its versions if `None`.
    pub(crate) async fn wait_until_version_drained(&self, name: &str, version: Option<u64>) {
        let drains = |model: &ModelState| match version {
            Some(version) => model.draining.contains(&version),
            None => !model.draining.is_empty(),
        };
        self.wait_until(|models| !models.get(name).is_some_and(drains)).await;
    }

    /// Waits until `done` returns true, for at most the longest deadline of a request.
    async fn wait_until(&self, done: impl Fn(&BTreeMap<String, ModelState>) -> bool) {
        let mut changes = self.changes.subscribe();
        let wait = async {
            while !done(&self.read_models()) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(DEADLINE_MAX, wait).await;
    }

    /// Waits for the version's last request, then frees it on a blocking thread.
    fn spawn_drain(self: &Arc<ModelRouter>, old: Arc<LiveVersion>) {
        let router = Arc::clone(self);
        tokio::spawn(async move {
            old.drain().await;
            let (name, version) = (old.model.clone(), old.version);
            if tokio::task::spawn_blocking(move || drop(old)).await.is_err() {
                tracing::error!(model = name, version, "freeing the version panicked");
            }
            router.finish_drain(&name, version);
        });
    }

    fn finish_drain(self: &Arc<ModelRouter>, name: &str, version: u64) {
        self.update_model(name, |model| {
            if let Some(at) = model.draining.iter().position(|&draining| draining == version) {
                model.draining.remove(at);
            }
            if !model.ready.contains_key(&version) && !model.draining.contains(&version) {
                self.model_metrics.expire_version_series(name, version);
            }
        });
        tracing::info!(model = name, version, "version unloaded");
    }

    // A panic while the lock is held leaves the map consistent: every change is one assignment.
    fn read_models(&self) -> RwLockReadGuard<'_, BTreeMap<String, ModelState>> {
        self.models.read()
    }

    fn write_models(&self) -> RwLockWriteGuard<'_, BTreeMap<String, ModelState>> {
        self.models.write()
    }
}

fn version_not_serving(name: &str, model: &ModelState, version: u64) -> ServingError {
    ServingError::VersionNotServing {
        model: name.to_owned(),
        version,
        state: model.version_state(version),
        serving: model.default,
    }
}
