//! Instances of one model version: made on demand up to a maximum, kept warm, dropped where their code failed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use saggar_device::{Backend, Meter};
use wasmtime::Store;
use wasmtime::component::ResourceAny;

use super::{ModelLimits, NamedBytes, Signature};
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
use crate::variables::Namespace;

/// What instances are made of.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) host: Host,
    pub(super) plugin: Plugin,
    /// For the log.
    pub(super) name: Arc<str>,
    /// Uploaded once; clones share the device memory.
    pub(super) weights: Namespace,
    pub(super) config: String,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) meter: Meter,
    pub(super) executables: Arc<Executables>,
    pub(super) limits: ModelLimits,
}

/// A loaded plugin: serves one call at a time.
pub(super) struct Instance {
    store: Store<State>,
    guest: predictor::Guest,
    model: ResourceAny,
}

impl Version {
    /// A fresh instance, loaded.
    pub(super) fn instance(&self) -> Result<Instance, PluginError> {
        let span = tracing::debug_span!("load", plugin = %self.name);
        let _entered = span.enter();
        let role = Role::Predict { plugin: Arc::clone(&self.name), reply: None };
        let memory_bytes_max = self.limits.memory_bytes.min(MEMORY_BYTES_MAX);
        let mut state = State::new(Arc::clone(&self.backend), self.meter.clone(), memory_bytes_max, role);
        state.executables = Some(Arc::clone(&self.executables));
        let mut store = state.into_store(self.host.engine());
        let clock = Clock::new(Some(self.limits.load_time), None);
        let instance = self.plugin.instantiate(&mut store, clock)?;
        let guest = self.plugin.predictor()?.load(&mut store, &instance).map_err(incompatible)?;
        store.data_mut().begin_call(clock);
        let weights = store.data_mut().push(self.weights.clone()).map_err(|fault| fault_error(&mut store, fault))?;
        let loaded = guest.model().call_load(&mut store, weights, &self.config);
        let loaded = loaded.map_err(|error| store.data_mut().trap("load", &error))?;
        let model = loaded.map_err(|error| store.data_mut().guest_error("load", error))?;
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
    pub(super) fn signature(&mut self, limit: Duration) -> Result<Signature, PluginError> {
        self.store.data_mut().begin_call(Clock::new(Some(limit), None));
        let signature = self.guest.model().call_signature(&mut self.store, self.model);
        Signature::new(signature.map_err(|error| self.store.data_mut().trap("signature", &error))?)
    }

    /// One batch, of a size that the plugin has a graph for. `left` is what remains of `limit`, which errors name. Pieces
    /// go ahead through `reply`.
    pub(super) fn predict(
        &mut self,
        inputs: Vec<NamedBytes>,
        left: Duration,
        limit: Duration,
        reply: Reply,
    ) -> Result<Vec<NamedBytes>, PluginError> {
        let span = tracing::debug_span!("predict");
        let _entered = span.enter();
        self.store.data_mut().begin_call(Clock::new(Some(left), None));
        let inputs = self.upload(inputs).map_err(|fault| fault_error(&mut self.store, fault))?;
        self.store.data_mut().set_reply(Some(reply));
        let answer = self.guest.model().call_predict(&mut self.store, self.model, &inputs);
        // Nobody is kept waiting for pieces of a call that is over.
        self.store.data_mut().set_reply(None);
        let answer = answer.map_err(|error| match self.store.data_mut().trap("predict", &error) {
            // The caller knows its whole deadline, not what other parts of the batch left of it.
            PluginError::Deadline { during, .. } => {
                PluginError::Deadline { during, limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) }
            }
            error => error,
        })?;
        let outputs = answer.map_err(|error| self.store.data_mut().guest_error("predict", error))?;
        self.download(outputs).map_err(|fault| fault_error(&mut self.store, fault))
    }

    fn upload(&mut self, inputs: Vec<NamedBytes>) -> Result<Vec<NamedTensor>, Fault> {
        let state = self.store.data_mut();
        let upload = |(name, descriptor, bytes): NamedBytes| {
            let buffer = state.upload(&descriptor, &bytes)?;
            Ok(NamedTensor { name, tensor: state.push(Tensor { buffer })? })
        };
        inputs.into_iter().map(upload).collect()
    }

    fn download(&mut self, outputs: Vec<NamedTensor>) -> Result<Vec<NamedBytes>, Fault> {
        let state = self.store.data_mut();
        // All handles are taken back first: an error must not leave some of them in the table.
        let take = |NamedTensor { name, tensor }| Ok((name, state.table.delete(tensor)?.buffer));
        let taken = outputs.into_iter().map(take).collect::<Result<Vec<_>, Fault>>()?;
        let read = |(name, buffer): (String, saggar_device::Buffer)| {
            Ok((name, buffer.descriptor().clone(), state.backend.read(&buffer)?))
        };
        taken.into_iter().map(read).collect()
    }
}

/// The instances of a version.
pub(super) struct Instances {
    version: Version,
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
        f.debug_struct("Instances").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Instances {
    pub(super) fn new(version: Version, first: Instance) -> Instances {
        Instances { version, pool: Mutex::new(Pool { idle: vec![first], count: 1 }), freed: Condvar::new() }
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
    /// `Busy` after `patience`; whatever making one does wrong.
    pub(super) fn take(&self, patience: Duration) -> Result<Lease<'_>, PluginError> {
        let began = Instant::now();
        let instances_max = self.version.limits.instances_max.max(1);
        let mut pool = self.pool();
        loop {
            if let Some(instance) = pool.idle.pop() {
                return Ok(Lease { instances: self, instance: Some(instance), whole: true });
            }
            if pool.count < instances_max {
                pool.count += 1;
                drop(pool);
                // Where making it fails, the lease gives the place back.
                let mut lease = Lease { instances: self, instance: None, whole: false };
                lease.instance = Some(self.version.instance()?);
                lease.whole = true;
                return Ok(lease);
            }
            let Some(left) = patience.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else {
                return Err(PluginError::Busy { instances: pool.count, waited: patience });
            };
            pool = self.freed.wait_timeout(pool, left).unwrap_or_else(PoisonError::into_inner).0;
        }
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
        let (kept, dropped) = if self.whole { (instance, None) } else { (None, instance) };
        let mut pool = self.instances.pool();
        match kept {
            Some(instance) => pool.idle.push(instance),
            None => pool.count -= 1,
        }
        drop(pool);
        self.instances.freed.notify_one();
        // Unmapping its memory takes a while: after the pool is free.
        drop(dropped);
    }
}
