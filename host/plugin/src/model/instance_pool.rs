//! A pool of instances of one plugin with one configuration: created on demand up to a maximum, kept warm, dropped when
//! their code fails. They hold no weights: each call brings those of its version.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use saggar_compile::Optimization;
use saggar_device::{Backend, CancelToken, DeviceBuffer, Meter};
use saggar_store::checkpoint::VariableKind;
use wasmtime::Store;
use wasmtime::component::ResourceAny;

use super::batch_sizes::BatchSizes;
use super::model_limits::{InstanceStartHook, ModelLimits};
use super::prediction_options::millis;
use super::signature::ModelSignature;
use crate::bindings::tensors::NamedTensor;
use crate::bindings::{http_handler, predictor};
use crate::call_limits::CallClock;
use crate::engine::{CompiledPlugin, PluginEngine, incompatible_error};
use crate::error::PluginError;
use crate::graphs::compiled_graph::ExecutableCache;
use crate::host_error::HostError;
use crate::http_handler::handler_call::{
    HANDLE, HandlerOptions, HandlerRequest, HandlerResponse, StreamedResponse, checked_response,
};
use crate::instance_state::{InstanceRole, InstanceState};
use crate::limits::MEMORY_BYTES_MAX;
use crate::streaming::reply::StreamingReply;
use crate::tensors::device_tensor::DeviceTensor;
use crate::variables::device_weights::DeviceWeights;
use crate::variables::namespace::VariableNamespace;

/// The plugin, configuration and device that instances are created from.
#[derive(Debug)]
pub(super) struct InstanceFactory {
    pub(super) host: PluginEngine,
    pub(super) plugin: CompiledPlugin,
    /// The plugin's name in the log.
    pub(super) name: Arc<str>,
    /// The variables that the plugin can ask for; their elements come with each call.
    pub(super) variables: VariableNamespace,
    pub(super) config: String,
    pub(super) backend: Arc<dyn Backend>,
    /// The meter charged with programs and with tensors of calls.
    pub(super) meter: Meter,
    pub(super) executables: Arc<ExecutableCache>,
    pub(super) limits: ModelLimits,
    pub(super) on_instance_start: Option<InstanceStartHook>,
}

/// The time that a call waits for an instance.
#[derive(Clone, Copy, Debug)]
pub(super) enum InstanceWait {
    /// Waits this long for the next instance to be freed, or as long as loading a new one takes.
    Within(Duration),
    /// Does not wait; `limit` is only reported in the error.
    NoWait {
        /// The call's whole time limit.
        limit: Duration,
    },
}

/// A loaded plugin, which serves one call at a time.
pub(super) struct PluginInstance {
    store: Store<InstanceState>,
    guest: predictor::Guest,
    /// The plugin's HTTP handlers, if it exports any.
    handler: Option<http_handler::Guest>,
    model: ResourceAny,
}

/// One call: its weights, time limit and streaming state.
pub(super) struct InstanceCall {
    pub(super) weights: Arc<DeviceWeights>,
    /// The rest of the time limit, whose total is [`StreamingReply::limit`].
    pub(super) left: Duration,
    pub(super) cancel: Option<CancelToken>,
    pub(super) reply: StreamingReply,
}

impl InstanceFactory {
    /// Returns the clock of a load that begins now.
    fn load_clock(&self) -> CallClock {
        CallClock::new(Some(self.limits.load_time), None)
    }

    /// Creates an instance and loads the plugin in it, within the time of `clock`. Loading can compute with `weights`.
    fn create_instance(&self, weights: &Arc<DeviceWeights>, clock: CallClock) -> Result<PluginInstance, PluginError> {
        let span = tracing::debug_span!("load", plugin = %self.name);
        let _entered = span.enter();
        let role = InstanceRole::Predict { plugin: Arc::clone(&self.name), reply: None };
        let memory_bytes_max = self.limits.memory_bytes.min(MEMORY_BYTES_MAX);
        let mut state = InstanceState::new(Arc::clone(&self.backend), self.meter.clone(), memory_bytes_max, role);
        state.graphs.compiler = self.host.compiler().clone();
        let shares_programs = self.backend.target().without.enables(Optimization::ProgramCache);
        state.graphs.executables = shares_programs.then(|| Arc::clone(&self.executables));
        state.weights.set(Some(Arc::clone(weights)));
        let began = Instant::now();
        let mut store = state.into_store(self.host.engine());
        let instance = self.plugin.instantiate(&mut store, clock)?;
        if let Some(started) = &self.on_instance_start {
            started.notify(began.elapsed());
        }
        let guest = self.plugin.predictor_export()?.load(&mut store, &instance).map_err(incompatible_error)?;
        let handler = self.plugin.handler_export().map(|export| export.load(&mut store, &instance));
        let handler = handler.transpose().map_err(incompatible_error)?;
        store.data_mut().begin_call(clock);
        let variables =
            store.data_mut().push(self.variables.clone()).map_err(|fault| to_plugin_error(&mut store, fault))?;
        let loaded = guest.model().call_load(&mut store, variables, &self.config);
        let loaded = loaded
            .map_err(|error| store.data_mut().trap_error("load", &error))
            .and_then(|loaded| loaded.map_err(|error| store.data_mut().guest_error("load", error)));
        let model = loaded.map_err(|error| store.data_mut().weights.explain_load_error(error))?;
        store.data_mut().finish_output();
        store.data_mut().weights.set(None);
        Ok(PluginInstance { store, guest, handler, model })
    }
}

impl InstanceFactory {
    /// Loads the plugin in an instance that is dropped again, and returns the kinds of the variables that it asked for,
    /// by name. The factory's namespace must adopt kinds.
    ///
    /// # Errors
    /// The errors of loading the plugin; `Weights`.
    pub(super) fn declared_kinds(
        &self,
        weights: &Arc<DeviceWeights>,
    ) -> Result<BTreeMap<String, VariableKind>, PluginError> {
        let instance = self.create_instance(weights, self.load_clock())?;
        Ok(instance.store.data().weights.declared_kinds().clone())
    }
}

fn to_plugin_error(store: &mut Store<InstanceState>, fault: HostError) -> PluginError {
    match store.data_mut().wit_error(fault) {
        Ok(error) => store.data_mut().guest_error("host", error),
        Err(error) => PluginError::engine(error),
    }
}

impl PluginInstance {
    /// Returns the signature that the plugin reports, checked.
    pub(super) fn signature(&mut self, clock: CallClock) -> Result<ModelSignature, PluginError> {
        self.store.data_mut().begin_call(clock);
        let signature = self.guest.model().call_signature(&mut self.store, self.model);
        let signature = signature.map_err(|error| self.store.data_mut().trap_error("signature", &error))?;
        let handlers = match &self.handler {
            Some(handler) => handler.call_routes(&mut self.store),
            None => Ok(Vec::new()),
        };
        let handlers = handlers.map_err(|error| self.store.data_mut().trap_error("routes", &error))?;
        ModelSignature::from_wit(signature, handlers)
    }

    /// Returns whether the plugin has read the weights that it was loaded or called with, so that its state can depend
    /// on them.
    fn weights_read(&self) -> bool {
        self.store.data().weights.were_read()
    }

    /// Predicts one batch, of a size that the plugin has a graph for. The plugin can send output pieces through the
    /// reply.
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
        state.weights.set(Some(weights));
        let inputs = self.push_inputs(inputs).map_err(|fault| to_plugin_error(&mut self.store, fault))?;
        self.store.data_mut().set_reply(Some(reply));
        let answer = self.guest.model().call_predict(&mut self.store, self.model, &inputs);
        // Drop the sink and the weights: the call is over.
        let state = self.store.data_mut();
        state.finish_output();
        state.set_reply(None);
        state.set_cancel_token(None);
        state.weights.set(None);
        let answer = answer.map_err(|error| match self.store.data_mut().trap_error("predict", &error) {
            // Report the whole deadline of the caller, not what other parts of the batch left of it.
            PluginError::Deadline { during, .. } => {
                PluginError::Deadline { during, limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) }
            }
            error => error,
        })?;
        let outputs = answer.map_err(|error| self.store.data_mut().guest_error("predict", error))?;
        self.take_outputs(outputs).map_err(|fault| to_plugin_error(&mut self.store, fault))
    }

    /// Runs a handler of the plugin. A streamed response goes to the sink of `options`.
    pub(super) fn handle(
        &mut self,
        request: HandlerRequest,
        weights: Arc<DeviceWeights>,
        options: &HandlerOptions,
    ) -> Result<Option<HandlerResponse>, PluginError> {
        let span = tracing::debug_span!("handle");
        let _entered = span.enter();
        let missing = PluginError::MissingExport { export: "saggar:plugin/http-handler", purpose: "handle requests" };
        let handler = self.handler.as_ref().ok_or(missing)?;
        let HandlerOptions { until, limit, .. } = *options;
        let state = self.store.data_mut();
        state.begin_call(CallClock::new(Some(until.saturating_duration_since(Instant::now())), None));
        state.set_cancel_token(Some(options.cancel.clone()));
        state.weights.set(Some(weights));
        let sink = Arc::clone(&options.sink);
        state.response = Some(StreamedResponse { sink, until, limit, is_started: false });
        let (route, request) = request.into_wit();
        let answer = handler.call_handle(&mut self.store, route, &request);
        drop(request);
        // Drop the sink and the weights: the call is over.
        let state = self.store.data_mut();
        state.finish_output();
        let is_started = state.response.take().is_some_and(|response| response.is_started);
        state.set_cancel_token(None);
        state.weights.set(None);
        let answer = answer.map_err(|error| match self.store.data_mut().trap_error(HANDLE, &error) {
            PluginError::Deadline { during, .. } => PluginError::Deadline { during, limit_ms: millis(limit) },
            error => error,
        })?;
        let response = answer.map_err(|error| self.store.data_mut().guest_error(HANDLE, error))?;
        checked_response(response, is_started)
    }

    fn push_inputs(&mut self, inputs: Vec<(String, DeviceBuffer)>) -> Result<Vec<NamedTensor>, HostError> {
        let state = self.store.data_mut();
        let lend = |(name, buffer)| Ok(NamedTensor { name, tensor: state.push(DeviceTensor { buffer })? });
        inputs.into_iter().map(lend).collect()
    }

    /// Takes all handles out of the table before it returns an error, so that none is left there.
    fn take_outputs(&mut self, outputs: Vec<NamedTensor>) -> Result<Vec<(String, DeviceBuffer)>, HostError> {
        let state = self.store.data_mut();
        let take = |NamedTensor { name, tensor }| Ok((name, state.table.delete(tensor)?.buffer));
        let buffers: Vec<Result<(String, DeviceBuffer), HostError>> = outputs.into_iter().map(take).collect();
        buffers.into_iter().collect()
    }
}

/// The instances of one plugin with one configuration. Their calls can bring different weights.
pub(super) struct InstancePool {
    factory: InstanceFactory,
    /// Set once an instance has read weights: then the instances cannot serve with others.
    weights_fixed: AtomicBool,
    /// Device bytes that the version held when it was warm.
    warm_bytes: AtomicU64,
    /// The batch sizes and which of them have programs.
    sizes: BatchSizes,
    pool: Mutex<InstancePoolState>,
    freed: Condvar,
}

struct InstancePoolState {
    idle: Vec<PluginInstance>,
    /// Number of idle, leased and loading instances.
    count: usize,
}

impl std::fmt::Debug for InstancePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instances").field("recipe", &self.factory).finish_non_exhaustive()
    }
}

impl InstancePool {
    /// Creates the pool and its first instance, loaded with these weights. Also returns the signature that it reports.
    ///
    /// # Errors
    /// The errors of loading the plugin; `BadSignature`.
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

    /// Records the device bytes held now as what the version needs. Every ready batch size must have been computed
    /// once.
    pub(super) fn record_warm_bytes(&self) {
        self.warm_bytes.store(self.factory.meter.bytes(), Ordering::Release);
    }

    /// Returns whether a program for `size` items is likely to fit. Its memory is estimated in proportion to the
    /// largest size that has a program.
    pub(super) fn has_memory_for(&self, size: usize) -> bool {
        let held_bytes = self.warm_bytes.load(Ordering::Acquire).min(self.factory.meter.bytes());
        let growth = (size / self.sizes.largest_ready()).max(1) as u64;
        held_bytes.saturating_mul(growth + 1) <= self.factory.limits.batch_bytes_max
    }

    /// Returns whether calls left more device memory allocated than allowed. Only true if no other call holds any.
    fn exceeds_residual_limit(&self, pool: &InstancePoolState) -> bool {
        let bytes_max = self.warm_bytes.load(Ordering::Acquire).saturating_add(self.factory.limits.residual_bytes_max);
        pool.idle.len() + 1 == pool.count && self.factory.meter.bytes() > bytes_max
    }

    /// Returns whether calls can bring other weights than the calls before them.
    pub(super) fn accepts_other_weights(&self) -> bool {
        !self.weights_fixed.load(Ordering::Acquire)
    }

    fn pool(&self) -> MutexGuard<'_, InstancePoolState> {
        // No statement that holds the lock can panic and leave the pool inconsistent.
        self.pool.lock()
    }

    pub(super) fn instance_count(&self) -> usize {
        self.pool().count
    }

    /// Returns an instance for one call: an idle one, a new one, or the next to be freed.
    ///
    /// # Errors
    /// `Busy` after `patience`; `Deadline` if none is idle and the call does not wait; the errors of creating an
    /// instance.
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
            self.freed.wait_for(&mut pool, left);
        }
    }

    /// Creates an instance in addition to the serving ones, even if their maximum is reached. Afterwards it joins the
    /// pool if there is room.
    ///
    /// # Errors
    /// The errors of creating an instance.
    pub(super) fn acquire_extra(&self, weights: &Arc<DeviceWeights>) -> Result<InstanceLease<'_>, PluginError> {
        self.create_lease(self.pool(), weights)
    }

    /// Creates an instance, which counts toward the maximum from now on.
    fn create_lease(
        &self,
        mut pool: MutexGuard<'_, InstancePoolState>,
        weights: &Arc<DeviceWeights>,
    ) -> Result<InstanceLease<'_>, PluginError> {
        pool.count += 1;
        drop(pool);
        // If creation fails, dropping the lease decrements the count.
        let mut lease = InstanceLease { instances: self, instance: None, is_reusable: false };
        lease.instance = Some(self.factory.create_instance(weights, self.factory.load_clock())?);
        lease.is_reusable = true;
        Ok(lease)
    }
}

/// An instance leased to one call. It is dropped if it was used and not declared reusable afterwards.
pub(super) struct InstanceLease<'a> {
    instances: &'a InstancePool,
    instance: Option<PluginInstance>,
    is_reusable: bool,
}

impl InstanceLease<'_> {
    /// Returns the instance for one use and marks it as not reusable.
    pub(super) fn instance(&mut self) -> &mut PluginInstance {
        self.is_reusable = false;
        self.instance.as_mut().expect("a lease that was handed out has its instance")
    }

    /// Sets whether the instance can serve another call; must be called after each use.
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
        let (reusable, dropped) = if self.is_reusable && fits { (instance, None) } else { (None, instance) };
        let mut surplus = Vec::new();
        match reusable {
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
            tracing::info!(plugin = %self.instances.factory.name, bytes, "dropped instances: too much residual memory");
            self.instances.factory.executables.clear();
        }
        if surplus.is_empty() {
            self.instances.freed.notify_one();
        } else {
            self.instances.freed.notify_all();
        }
        // Unmapping its memory takes a while, so do it after unlocking the pool.
        drop(dropped);
    }
}
