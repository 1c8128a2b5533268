//! Instances of one plugin with one configuration: made on demand up to a maximum, kept warm, dropped where their code
//! failed. They hold no weights: each call brings those of its version.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use saggar_device::{Backend, CancelToken, DeviceBuffer, Meter};
use wasmtime::Store;
use wasmtime::component::ResourceAny;

use super::batch_sizes::BatchSizes;
use super::{ModelLimits, Signature, Started};
use crate::bindings::predictor;
use crate::bindings::tensors::NamedTensor;
use crate::engine::{Host, Plugin, incompatible};
use crate::error::PluginError;
use crate::fault::Fault;
use crate::graphs::Executables;
use crate::limits::MEMORY_BYTES_MAX;
use crate::replies::Reply;
use crate::state::{Clock, Role, State};
use crate::tensors::Tensor;
use crate::variables::{Namespace, Weights};

/// What instances are made of.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) host: Host,
    pub(super) plugin: Plugin,
    /// For the log.
    pub(super) name: Arc<str>,
    /// The variables that the plugin may ask for; their elements come with each call.
    pub(super) variables: Namespace,
    pub(super) config: String,
    pub(super) backend: Arc<dyn Backend>,
    /// Charged with programs and with tensors of calls.
    pub(super) meter: Meter,
    pub(super) executables: Arc<Executables>,
    pub(super) limits: ModelLimits,
    pub(super) started: Option<Started>,
}

/// How long a call waits for an instance.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// As long as loading one takes, or this long for the next to be freed.
    Within(Duration),
    /// Not at all; `limit` is what its caller was told that it has.
    Prompt {
        /// The call's whole time.
        limit: Duration,
    },
}

/// A loaded plugin: serves one call at a time.
pub(super) struct Instance {
    store: Store<State>,
    guest: predictor::Guest,
    model: ResourceAny,
}

/// One call: what it computes with, and when it is given up.
pub(super) struct Terms {
    pub(super) weights: Arc<Weights>,
    /// What remains of the time, which [`Reply::limit`] gives whole.
    pub(super) left: Duration,
    pub(super) cancel: Option<CancelToken>,
    pub(super) reply: Reply,
}

impl Recipe {
    /// The clock of a load that begins now.
    fn clock(&self) -> Clock {
        Clock::new(Some(self.limits.load_time), None)
    }

    /// A fresh instance, loaded by this clock. Its loading may compute with these weights.
    fn instance(&self, weights: &Arc<Weights>, clock: Clock) -> Result<Instance, PluginError> {
        let span = tracing::debug_span!("load", plugin = %self.name);
        let _entered = span.enter();
        let role = Role::Predict { plugin: Arc::clone(&self.name), reply: None };
        let memory_bytes_max = self.limits.memory_bytes.min(MEMORY_BYTES_MAX);
        let mut state = State::new(Arc::clone(&self.backend), self.meter.clone(), memory_bytes_max, role);
        state.compiler = self.host.compiler().clone();
        state.executables = Some(Arc::clone(&self.executables));
        state.weights = Some(Arc::clone(weights));
        let began = Instant::now();
        let mut store = state.into_store(self.host.engine());
        let instance = self.plugin.instantiate(&mut store, clock)?;
        if let Some(started) = &self.started {
            started.tell(began.elapsed());
        }
        let guest = self.plugin.predictor()?.load(&mut store, &instance).map_err(incompatible)?;
        store.data_mut().begin_call(clock);
        let variables =
            store.data_mut().push(self.variables.clone()).map_err(|fault| fault_error(&mut store, fault))?;
        let loaded = guest.model().call_load(&mut store, variables, &self.config);
        let loaded = loaded.map_err(|error| store.data_mut().trap("load", &error))?;
        let model = loaded.map_err(|error| store.data_mut().guest_error("load", error))?;
        store.data_mut().weights = None;
        Ok(Instance { store, guest, model })
    }
}

fn fault_error(store: &mut Store<State>, fault: Fault) -> PluginError {
    match store.data_mut().answer(fault) {
        Ok(error) => store.data_mut().guest_error("host", error),
        Err(error) => PluginError::engine(error),
    }
}

impl Instance {
    /// What the plugin says of itself, checked.
    pub(super) fn signature(&mut self, clock: Clock) -> Result<Signature, PluginError> {
        self.store.data_mut().begin_call(clock);
        let signature = self.guest.model().call_signature(&mut self.store, self.model);
        Signature::new(signature.map_err(|error| self.store.data_mut().trap("signature", &error))?)
    }

    /// Whether something in it depends on the weights that it was loaded or called with.
    fn weights_seen(&self) -> bool {
        self.store.data().weights_seen
    }

    /// One batch, of a size that the plugin has a graph for. Pieces go ahead through the reply.
    pub(super) fn predict(
        &mut self,
        inputs: Vec<(String, DeviceBuffer)>,
        terms: Terms,
    ) -> Result<Vec<(String, DeviceBuffer)>, PluginError> {
        let span = tracing::debug_span!("predict");
        let _entered = span.enter();
        let Terms { weights, left, cancel, reply } = terms;
        let limit = reply.limit;
        let state = self.store.data_mut();
        state.begin_call(Clock::new(Some(left), None));
        state.cancel_by(cancel);
        state.weights = Some(weights);
        let inputs = self.lend(inputs).map_err(|fault| fault_error(&mut self.store, fault))?;
        self.store.data_mut().set_reply(Some(reply));
        let answer = self.guest.model().call_predict(&mut self.store, self.model, &inputs);
        // Nobody is kept waiting for pieces of a call that is over, and no weights are kept for it.
        let state = self.store.data_mut();
        state.set_reply(None);
        state.cancel_by(None);
        state.weights = None;
        let answer = answer.map_err(|error| match self.store.data_mut().trap("predict", &error) {
            // The caller knows its whole deadline, not what other parts of the batch left of it.
            PluginError::Deadline { during, .. } => {
                PluginError::Deadline { during, limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) }
            }
            error => error,
        })?;
        let outputs = answer.map_err(|error| self.store.data_mut().guest_error("predict", error))?;
        self.take_back(outputs).map_err(|fault| fault_error(&mut self.store, fault))
    }

    fn lend(&mut self, inputs: Vec<(String, DeviceBuffer)>) -> Result<Vec<NamedTensor>, Fault> {
        let state = self.store.data_mut();
        let lend = |(name, buffer)| Ok(NamedTensor { name, tensor: state.push(Tensor { buffer })? });
        inputs.into_iter().map(lend).collect()
    }

    /// All handles are taken back before anything else is done: an error must not leave some of them in the table.
    fn take_back(&mut self, outputs: Vec<NamedTensor>) -> Result<Vec<(String, DeviceBuffer)>, Fault> {
        let state = self.store.data_mut();
        let take = |NamedTensor { name, tensor }| Ok((name, state.table.delete(tensor)?.buffer));
        let taken: Vec<Result<(String, DeviceBuffer), Fault>> = outputs.into_iter().map(take).collect();
        taken.into_iter().collect()
    }
}

/// The instances of one plugin with one configuration, whichever weights their calls bring.
pub(super) struct Instances {
    recipe: Recipe,
    /// Whether an instance once saw weights: then they cannot go on with others.
    fixed: AtomicBool,
    /// Device bytes that the version held when it was warm.
    warm_bytes: AtomicU64,
    /// Which batch sizes there are programs for.
    sizes: BatchSizes,
    pool: Mutex<Pool>,
    freed: Condvar,
}

struct Pool {
    idle: Vec<Instance>,
    /// Idle, lent out and being made.
    count: usize,
}

impl std::fmt::Debug for Instances {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instances").field("recipe", &self.recipe).finish_non_exhaustive()
    }
}

impl Instances {
    /// Instances by this recipe, the first of which is made at once with these weights. Gives what it says of itself, too.
    ///
    /// # Errors
    /// Whatever its loading does wrong; `BadSignature`.
    pub(super) fn new(recipe: Recipe, weights: &Arc<Weights>) -> Result<(Instances, Signature), PluginError> {
        let clock = recipe.clock();
        let mut first = recipe.instance(weights, clock)?;
        let signature = first.signature(clock)?;
        let fixed = AtomicBool::new(first.weights_seen());
        let pool = Mutex::new(Pool { idle: vec![first], count: 1 });
        let warm_bytes = AtomicU64::new(u64::MAX);
        let sizes = BatchSizes::new(&signature.batch_sizes);
        Ok((Instances { recipe, fixed, warm_bytes, sizes, pool, freed: Condvar::new() }, signature))
    }

    pub(super) fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    pub(super) fn sizes(&self) -> &BatchSizes {
        &self.sizes
    }

    /// Every batch size that is ready was computed once: what is held now is what the version needs.
    pub(super) fn set_warm(&self) {
        self.warm_bytes.store(self.recipe.meter.bytes(), Ordering::Release);
    }

    /// Whether a program for `size` items is likely to fit: it takes as much more than those that are there as it has more
    /// items than the largest of them.
    pub(super) fn has_room_for(&self, size: usize) -> bool {
        let held_bytes = self.warm_bytes.load(Ordering::Acquire).min(self.recipe.meter.bytes());
        let growth = (size / self.sizes.largest_ready()).max(1) as u64;
        held_bytes.saturating_mul(growth + 1) <= self.recipe.limits.batch_bytes_max
    }

    /// Whether calls left more device memory behind than they may. Told only where no other call holds any.
    fn holds_too_much(&self, pool: &Pool) -> bool {
        let bytes_max = self.warm_bytes.load(Ordering::Acquire).saturating_add(self.recipe.limits.left_bytes_max);
        pool.idle.len() + 1 == pool.count && self.recipe.meter.bytes() > bytes_max
    }

    /// Whether calls may bring other weights than those that came before.
    pub(super) fn takes_other_weights(&self) -> bool {
        !self.fixed.load(Ordering::Acquire)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        // The pool is whole between any two statements that hold it.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.pool().count
    }

    /// An instance for one call: an idle one, a new one, or the next to be freed.
    ///
    /// # Errors
    /// `Busy` after `patience`; `Deadline` without any where none is idle; whatever making one does wrong.
    pub(super) fn take(&self, weights: &Arc<Weights>, patience: Patience) -> Result<Lease<'_>, PluginError> {
        let began = Instant::now();
        let instances_max = self.recipe.limits.instances_max.max(1);
        let mut pool = self.pool();
        loop {
            if let Some(instance) = pool.idle.pop() {
                return Ok(Lease { instances: self, instance: Some(instance), whole: true });
            }
            let patience = match patience {
                Patience::Within(patience) => patience,
                Patience::Prompt { limit } => {
                    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                    return Err(PluginError::Deadline { during: "load", limit_ms });
                }
            };
            if pool.count < instances_max {
                return self.make(pool, weights);
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
    pub(super) fn take_beside(&self, weights: &Arc<Weights>) -> Result<Lease<'_>, PluginError> {
        self.make(self.pool(), weights)
    }

    /// A new instance, which counts from now on.
    fn make(&self, mut pool: MutexGuard<'_, Pool>, weights: &Arc<Weights>) -> Result<Lease<'_>, PluginError> {
        pool.count += 1;
        drop(pool);
        // Where making it fails, the lease gives the place back.
        let mut lease = Lease { instances: self, instance: None, whole: false };
        lease.instance = Some(self.recipe.instance(weights, self.recipe.clock())?);
        lease.whole = true;
        Ok(lease)
    }
}

/// An instance lent to one call. Where it was used and nobody said that it is whole after that, it is dropped.
pub(super) struct Lease<'a> {
    instances: &'a Instances,
    instance: Option<Instance>,
    whole: bool,
}

impl Lease<'_> {
    /// The instance, to be used once.
    pub(super) fn instance(&mut self) -> &mut Instance {
        self.whole = false;
        self.instance.as_mut().expect("a lease that was handed out has its instance")
    }

    /// Whether the instance may serve another call: said anew after each use of it.
    pub(super) fn set_whole(&mut self, whole: bool) {
        self.whole = whole;
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let instance = self.instance.take();
        if instance.as_ref().is_some_and(Instance::weights_seen) {
            self.instances.fixed.store(true, Ordering::Release);
        }
        let mut pool = self.instances.pool();
        let fits = pool.count <= self.instances.recipe.limits.instances_max.max(1);
        let (kept, dropped) = if self.whole && fits { (instance, None) } else { (None, instance) };
        let mut surplus = Vec::new();
        match kept {
            Some(instance) if self.instances.holds_too_much(&pool) => {
                surplus = std::mem::take(&mut pool.idle);
                surplus.push(instance);
                pool.count = 0;
            }
            Some(instance) => pool.idle.push(instance),
            None => pool.count -= 1,
        }
        drop(pool);
        if !surplus.is_empty() {
            let bytes = self.instances.recipe.meter.bytes();
            tracing::info!(plugin = %self.instances.recipe.name, bytes, "instances are dropped: calls left too much behind");
            self.instances.recipe.executables.clear();
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
