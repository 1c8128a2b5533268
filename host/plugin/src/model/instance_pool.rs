//! Instances of one plugin with one configuration: made on demand up to a maximum, kept warm, dropped where their code
//! failed. They hold no weights: each call brings those of its version.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use saggar_device::{Backend, CancelToken, DeviceBuffer, Meter};
use wasmtime::Store;
use wasmtime::component::ResourceAny;

use super::batch_sizes::BatchSizes;
use super::{InstanceStartHook, ModelLimits, ModelSignature};
use crate::bindings::predictor;
use crate::bindings::tensors::NamedTensor;
use crate::engine::{CompiledPlugin, PluginEngine, incompatible_error};
use crate::error::PluginError;
use crate::graphs::ExecutableCache;
use crate::host_error::HostError;
use crate::instance_state::{CallClock, InstanceRole, InstanceState};
use crate::limits::MEMORY_BYTES_MAX;
use crate::streaming::StreamingReply;
use crate::tensors::DeviceTensor;
use crate::variables::{DeviceWeights, VariableNamespace};

/// What instances are made of.
#[derive(Debug)]
pub(super) struct InstanceFactory {
    pub(super) host: PluginEngine,
    pub(super) plugin: CompiledPlugin,
    /// For the log.
    pub(super) name: Arc<str>,
    /// The variables that the plugin may ask for; their elements come with each call.
    pub(super) variables: VariableNamespace,
    pub(super) config: String,
    pub(super) backend: Arc<dyn Backend>,
    /// Charged with programs and with tensors of calls.
    pub(super) meter: Meter,
    pub(super) executables: Arc<ExecutableCache>,
    pub(super) limits: ModelLimits,
    pub(super) on_instance_start: Option<InstanceStartHook>,
}

/// How long a call waits for an instance.
#[derive(Clone, Copy, Debug)]
pub(super) enum InstanceWait {
    /// As long as loading one takes, or this long for the next to be freed.
    Within(Duration),
    /// Not at all; `limit` is what its caller was told that it has.
    NoWait {
        /// The call's whole time.
        limit: Duration,
    },
}

/// A loaded plugin: serves one call at a time.
pub(super) struct PluginInstance {
    store: Store<InstanceState>,
    guest: predictor::Guest,
    model: ResourceAny,
}

/// One call: what it computes with, and when it is given up.
pub(super) struct InstanceCall {
    pub(super) weights: Arc<DeviceWeights>,
    /// What remains of the time, which [`StreamingReply::limit`] gives whole.
    pub(super) left: Duration,
    pub(super) cancel: Option<CancelToken>,
    pub(super) reply: StreamingReply,
}

impl InstanceFactory {
    /// The clock of a load that begins now.
    fn load_clock(&self) -> CallClock {
        CallClock::new(Some(self.limits.load_time), None)
    }

    /// A fresh instance, loaded by this clock. Its loading may compute with these weights.
    fn create_instance(&self, weights: &Arc<DeviceWeights>, clock: CallClock) -> Result<PluginInstance, PluginError> {
        let span = tracing::debug_span!("load", plugin = %self.name);
        let _entered = span.enter();
        let role = InstanceRole::Predict { plugin: Arc::clone(&self.name), reply: None };
        let memory_bytes_max = self.limits.memory_bytes.min(MEMORY_BYTES_MAX);
        let mut state = InstanceState::new(Arc::clone(&self.backend), self.meter.clone(), memory_bytes_max, role);
        state.compiler = self.host.compiler().clone();
        state.executables = Some(Arc::clone(&self.executables));
        state.weights = Some(Arc::clone(weights));
        let began = Instant::now();
        let mut store = state.into_store(self.host.engine());
        let instance = self.plugin.instantiate(&mut store, clock)?;
        if let Some(started) = &self.on_instance_start {
            started.notify(began.elapsed());
        }
        let guest = self.plugin.predictor_export()?.load(&mut store, &instance).map_err(incompatible_error)?;
        store.data_mut().begin_call(clock);
        let variables =
            store.data_mut().push(self.variables.clone()).map_err(|fault| to_plugin_error(&mut store, fault))?;
        let loaded = guest.model().call_load(&mut store, variables, &self.config);
        let loaded = loaded.map_err(|error| store.data_mut().trap_error("load", &error))?;
        let model = loaded.map_err(|error| store.data_mut().guest_error("load", error))?;
        store.data_mut().weights = None;
        Ok(PluginInstance { store, guest, model })
    }
}

fn to_plugin_error(store: &mut Store<InstanceState>, fault: HostError) -> PluginError {
    match store.data_mut().to_wit_error(fault) {
        Ok(error) => store.data_mut().guest_error("host", error),
        Err(error) => PluginError::engine(error),
    }
}

impl PluginInstance {
    /// What the plugin says of itself, checked.
    pub(super) fn signature(&mut self, clock: CallClock) -> Result<ModelSignature, PluginError> {
        self.store.data_mut().begin_call(clock);
        let signature = self.guest.model().call_signature(&mut self.store, self.model);
        ModelSignature::from_wit(signature.map_err(|error| self.store.data_mut().trap_error("signature", &error))?)
    }

    /// Whether something in it depends on the weights that it was loaded or called with.
    fn weights_read(&self) -> bool {
        self.store.data().weights_read
    }

    /// One batch, of a size that the plugin has a graph for. Pieces go ahead through the reply.
    pub(super) fn predict(
        &mut self,
        inputs: Vec<(String, DeviceBuffer)>,
        terms: InstanceCall,
    ) -> Result<Vec<(String, DeviceBuffer)>, PluginError> {
        let span = tracing::debug_span!("predict");
        let _entered = span.enter();
        let InstanceCall { weights, left, cancel, reply } = terms;
        let limit = reply.limit;
        let state = self.store.data_mut();
        state.begin_call(CallClock::new(Some(left), None));
        state.set_cancel_token(cancel);
        state.weights = Some(weights);
        let inputs = self.push_inputs(inputs).map_err(|fault| to_plugin_error(&mut self.store, fault))?;
        self.store.data_mut().set_reply(Some(reply));
        let answer = self.guest.model().call_predict(&mut self.store, self.model, &inputs);
        // Nobody is kept waiting for pieces of a call that is over, and no weights are kept for it.
        let state = self.store.data_mut();
        state.set_reply(None);
        state.set_cancel_token(None);
        state.weights = None;
        let answer = answer.map_err(|error| match self.store.data_mut().trap_error("predict", &error) {
            // The caller knows its whole deadline, not what other parts of the batch left of it.
            PluginError::Deadline { during, .. } => {
                PluginError::Deadline { during, limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) }
            }
            error => error,
        })?;
        let outputs = answer.map_err(|error| self.store.data_mut().guest_error("predict", error))?;
        self.take_outputs(outputs).map_err(|fault| to_plugin_error(&mut self.store, fault))
    }

    fn push_inputs(&mut self, inputs: Vec<(String, DeviceBuffer)>) -> Result<Vec<NamedTensor>, HostError> {
        let state = self.store.data_mut();
        let lend = |(name, buffer)| Ok(NamedTensor { name, tensor: state.push(DeviceTensor { buffer })? });
        inputs.into_iter().map(lend).collect()
    }

    /// All handles are taken back before anything else is done: an error must not leave some of them in the table.
    fn take_outputs(&mut self, outputs: Vec<NamedTensor>) -> Result<Vec<(String, DeviceBuffer)>, HostError> {
        let state = self.store.data_mut();
        let take = |NamedTensor { name, tensor }| Ok((name, state.table.delete(tensor)?.buffer));
        let taken: Vec<Result<(String, DeviceBuffer), HostError>> = outputs.into_iter().map(take).collect();
        taken.into_iter().collect()
    }
}

/// The instances of one plugin with one configuration, whichever weights their calls bring.
pub(super) struct InstancePool {
    factory: InstanceFactory,
    /// Whether an instance once saw weights: then they cannot go on with others.
    weights_fixed: AtomicBool,
    /// Device bytes that the version held when it was warm.
    warm_bytes: AtomicU64,
    /// Which batch sizes there are programs for.
    sizes: BatchSizes,
    pool: Mutex<InstancePoolState>,
    freed: Condvar,
}

struct InstancePoolState {
    idle: Vec<PluginInstance>,
    /// Idle, lent out and being made.
    count: usize,
}

impl std::fmt::Debug for InstancePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instances").field("recipe", &self.factory).finish_non_exhaustive()
    }
}

impl InstancePool {
    /// Instances by this recipe, the first of which is made at once with these weights. Gives what it says of itself, too.
    ///
    /// # Errors
    /// Whatever its loading does wrong; `BadSignature`.
    pub(super) fn new(
        recipe: InstanceFactory,
        weights: &Arc<DeviceWeights>,
    ) -> Result<(InstancePool, ModelSignature), PluginError> {
        let clock = recipe.load_clock();
        let mut first = recipe.create_instance(weights, clock)?;
        let signature = first.signature(clock)?;
        let fixed = AtomicBool::new(first.weights_read());
        let pool = Mutex::new(InstancePoolState { idle: vec![first], count: 1 });
        let warm_bytes = AtomicU64::new(u64::MAX);
        let sizes = BatchSizes::new(&signature.batch_sizes);
        Ok((
            InstancePool { factory: recipe, weights_fixed: fixed, warm_bytes, sizes, pool, freed: Condvar::new() },
            signature,
        ))
    }

    pub(super) fn factory(&self) -> &InstanceFactory {
        &self.factory
    }

    pub(super) fn sizes(&self) -> &BatchSizes {
        &self.sizes
    }

    /// Every batch size that is ready was computed once: what is held now is what the version needs.
    pub(super) fn record_warm_bytes(&self) {
        self.warm_bytes.store(self.factory.meter.bytes(), Ordering::Release);
    }

    /// Whether a program for `size` items is likely to fit: it takes as much more than those that are there as it has more
    /// items than the largest of them.
    pub(super) fn has_memory_for(&self, size: usize) -> bool {
        let held_bytes = self.warm_bytes.load(Ordering::Acquire).min(self.factory.meter.bytes());
        let growth = (size / self.sizes.largest_ready()).max(1) as u64;
        held_bytes.saturating_mul(growth + 1) <= self.factory.limits.batch_bytes_max
    }

    /// Whether calls left more device memory behind than they may. Told only where no other call holds any.
    fn exceeds_residual_limit(&self, pool: &InstancePoolState) -> bool {
        let bytes_max = self.warm_bytes.load(Ordering::Acquire).saturating_add(self.factory.limits.residual_bytes_max);
        pool.idle.len() + 1 == pool.count && self.factory.meter.bytes() > bytes_max
    }

    /// Whether calls may bring other weights than those that came before.
    pub(super) fn accepts_other_weights(&self) -> bool {
        !self.weights_fixed.load(Ordering::Acquire)
    }

    fn pool(&self) -> MutexGuard<'_, InstancePoolState> {
        // The pool is whole between any two statements that hold it.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn instance_count(&self) -> usize {
        self.pool().count
    }

    /// An instance for one call: an idle one, a new one, or the next to be freed.
    ///
    /// # Errors
    /// `Busy` after `patience`; `Deadline` without any where none is idle; whatever making one does wrong.
    pub(super) fn acquire(
        &self,
        weights: &Arc<DeviceWeights>,
        patience: InstanceWait,
    ) -> Result<InstanceLease<'_>, PluginError> {
        let began = Instant::now();
        let instances_max = self.factory.limits.instances_max.max(1);
        let mut pool = self.pool();
        loop {
            if let Some(instance) = pool.idle.pop() {
                return Ok(InstanceLease { instances: self, instance: Some(instance), is_reusable: true });
            }
            let patience = match patience {
                InstanceWait::Within(patience) => patience,
                InstanceWait::NoWait { limit } => {
                    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                    return Err(PluginError::Deadline { during: "load", limit_ms });
                }
            };
            if pool.count < instances_max {
                return self.create_lease(pool, weights);
            }
            let Some(left) = patience.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else {
                return Err(PluginError::Busy { instances: pool.count, waited: patience });
            };
            pool = self.freed.wait_timeout(pool, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A new instance beside those that serve, also where there are as many as may be. Afterwards it serves, too, where
    /// there is a place for it.
    ///
    /// # Errors
    /// Whatever making it does wrong.
    pub(super) fn acquire_extra(&self, weights: &Arc<DeviceWeights>) -> Result<InstanceLease<'_>, PluginError> {
        self.create_lease(self.pool(), weights)
    }

    /// A new instance, which counts from now on.
    fn create_lease(
        &self,
        mut pool: MutexGuard<'_, InstancePoolState>,
        weights: &Arc<DeviceWeights>,
    ) -> Result<InstanceLease<'_>, PluginError> {
        pool.count += 1;
        drop(pool);
        // Where making it fails, the lease gives the place back.
        let mut lease = InstanceLease { instances: self, instance: None, is_reusable: false };
        lease.instance = Some(self.factory.create_instance(weights, self.factory.load_clock())?);
        lease.is_reusable = true;
        Ok(lease)
    }
}

/// An instance lent to one call. Where it was used and nobody said that it is whole after that, it is dropped.
pub(super) struct InstanceLease<'a> {
    instances: &'a InstancePool,
    instance: Option<PluginInstance>,
    is_reusable: bool,
}

impl InstanceLease<'_> {
    /// The instance, to be used once.
    pub(super) fn instance(&mut self) -> &mut PluginInstance {
        self.is_reusable = false;
        self.instance.as_mut().expect("a lease that was handed out has its instance")
    }

    /// Whether the instance may serve another call: said anew after each use of it.
    pub(super) fn set_reusable(&mut self, whole: bool) {
        self.is_reusable = whole;
    }
}

impl Drop for InstanceLease<'_> {
    fn drop(&mut self) {
        let instance = self.instance.take();
        if instance.as_ref().is_some_and(PluginInstance::weights_read) {
            self.instances.weights_fixed.store(true, Ordering::Release);
        }
        let mut pool = self.instances.pool();
        let fits = pool.count <= self.instances.factory.limits.instances_max.max(1);
        let (kept, dropped) = if self.is_reusable && fits { (instance, None) } else { (None, instance) };
        let mut surplus = Vec::new();
        match kept {
            Some(instance) if self.instances.exceeds_residual_limit(&pool) => {
                surplus = std::mem::take(&mut pool.idle);
                surplus.push(instance);
                pool.count = 0;
            }
            Some(instance) => pool.idle.push(instance),
            None => pool.count -= 1,
        }
        drop(pool);
        if !surplus.is_empty() {
            let bytes = self.instances.factory.meter.bytes();
            tracing::info!(plugin = %self.instances.factory.name, bytes, "instances are dropped: calls left too much behind");
            self.instances.factory.executables.clear();
        }
        if surplus.is_empty() {
            self.instances.freed.notify_one();
        } else {
            self.instances.freed.notify_all();
        }
        // Unmapping its memory takes a while: after the pool is free.
        drop(dropped);
    }
}
