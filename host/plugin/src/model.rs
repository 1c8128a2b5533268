//! A model version in memory: its weights on the device once, and instances of its plugin that compute with them.
//!
//! An instance serves one call at a time. After a trap or a deadline it is dropped with everything it holds, and the next
//! call makes another; other calls notice nothing. Versions that differ in their weights alone share instances and
//! programs: a call brings its version's weights.

mod batch;
mod batch_sizes;
mod instance_pool;
mod route;
mod signature;

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_device::{Backend, CancelToken, DeviceBuffer, DeviceError, Meter};
use saggar_store::checkpoint::SavedVariable;
use saggar_tensor::Descriptor;

use crate::engine::{CompiledPlugin, PluginEngine};
use crate::error::PluginError;
use crate::graphs::ExecutableCache;
use crate::instance_state::CallClock;
use crate::limits::{
    BATCH_BYTES_DEFAULT, LOAD_TIME_DEFAULT, MEMORY_BYTES_DEFAULT, MODEL_INSTANCES_DEFAULT, RESIDUAL_BYTES_DEFAULT,
};
use crate::streaming::{PieceSink, StreamingReply};
use crate::variables::{DeviceWeights, VariableNamespace};

use instance_pool::{InstanceFactory, InstanceLease, InstancePool, InstanceWait};
pub use route::{ModelRoute, RouteSegment};
pub use signature::{ModelPort, ModelSignature};

/// A tensor with its port's name: dense little-endian elements, row-major.
pub type NamedTensorBytes = (String, Descriptor, Vec<u8>);

/// Limits of one model version.
#[derive(Clone, Copy, Debug)]
pub struct ModelLimits {
    /// Linear memory of each instance.
    pub memory_bytes: u64,
    /// Warm instances, and therefore calls at a time.
    pub instances_max: usize,
    /// How long an instance may take to load, and to be warmed.
    pub load_time: Duration,
    /// Device bytes that calls may leave behind, beyond what the version held when it was warm. Past it instances are
    /// dropped with everything that they hold, and the next call makes another.
    pub residual_bytes_max: u64,
    /// Device bytes of programs up to which larger batch sizes are built.
    pub batch_bytes_max: u64,
}

impl Default for ModelLimits {
    fn default() -> ModelLimits {
        ModelLimits {
            memory_bytes: MEMORY_BYTES_DEFAULT,
            instances_max: MODEL_INSTANCES_DEFAULT,
            load_time: LOAD_TIME_DEFAULT,
            residual_bytes_max: RESIDUAL_BYTES_DEFAULT,
            batch_bytes_max: BATCH_BYTES_DEFAULT,
        }
    }
}

/// Is told how long the making of each instance took, before its code was first called.
#[derive(Clone)]
pub struct InstanceStartHook(Arc<dyn Fn(Duration) + Send + Sync>);

impl InstanceStartHook {
    /// Calls `notify` for each instance.
    pub fn new(tell: impl Fn(Duration) + Send + Sync + 'static) -> InstanceStartHook {
        InstanceStartHook(Arc::new(tell))
    }

    fn notify(&self, time: Duration) {
        (self.0)(time);
    }
}

impl std::fmt::Debug for InstanceStartHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Started")
    }
}

/// What a model version is made of.
#[derive(Debug)]
pub struct ModelParts {
    /// The plugin.
    pub plugin: CompiledPlugin,
    /// The version's variables.
    pub variables: Vec<SavedVariable>,
    /// What the training gave to `publish`.
    pub config: String,
    /// Charged with the weights.
    pub weights_meter: Meter,
    /// Charged with programs and with tensors of calls.
    pub meter: Meter,
    /// Limits of its instances.
    pub limits: ModelLimits,
    /// Is told of every instance, where given.
    pub on_instance_start: Option<InstanceStartHook>,
}

/// How one prediction is computed.
#[derive(Clone, Debug)]
pub struct PredictionOptions {
    /// It is given up when this has passed.
    pub deadline: Duration,
    /// Where pieces go that the plugin sends of its outputs before it is done.
    pub sink: Option<Arc<dyn PieceSink>>,
    /// Tells that nobody waits for it any more.
    pub cancel: Option<CancelToken>,
    /// Whether it is computed on an instance that is there, or given up: to load another one may take long.
    pub requires_idle_instance: bool,
}

impl PredictionOptions {
    /// A prediction that is waited for this long, as a whole.
    pub fn with_deadline(deadline: Duration) -> PredictionOptions {
        PredictionOptions { deadline, sink: None, cancel: None, requires_idle_instance: false }
    }

    /// Gives the host's own work for it up at `until`.
    fn cancel_token(&self, until: Instant) -> CancelToken {
        let left = until.saturating_duration_since(Instant::now());
        CallClock::new(Some(left), None).cancel_token(self.cancel.clone())
    }

    /// The error of the host's own work for it, which says why it was given up where it was.
    fn explain_error(&self, error: DeviceError, until: Instant) -> PluginError {
        let during = "predict";
        match error {
            DeviceError::Cancelled if Instant::now() >= until => {
                PluginError::Deadline { during, limit_ms: millis(self.deadline) }
            }
            DeviceError::Cancelled => PluginError::Cancelled { during },
            error => error.into(),
        }
    }
}

/// Checks a batch of any size, cuts it into parts of the sizes that `sizes` names for its items, padded with zeros, has each
/// of them computed, and puts the outputs together. `compute` is given a part, its items, and the size it is padded to.
///
/// # Errors
/// `BadInput`; those of `compute`.
pub fn split_and_pad(
    signature: &ModelSignature,
    inputs: Vec<NamedTensorBytes>,
    sizes: impl FnOnce(usize) -> Vec<usize>,
    mut compute: impl FnMut(Vec<NamedTensorBytes>, [usize; 2]) -> Result<Vec<NamedTensorBytes>, PluginError>,
) -> Result<Vec<NamedTensorBytes>, PluginError> {
    let items = batch::count_items(signature, &inputs)?;
    let mut inputs = batch::BatchInputs::new(signature, inputs);
    let mut parts = Vec::new();
    let mut start = 0;
    for (count, size) in batch::plan_parts(&sizes(items), items) {
        let padded = inputs.padded_part(start, count, size)?;
        parts.push((compute(padded, [count, size])?, count));
        start += count;
    }
    batch::concat_outputs(signature, parts, items)
}

/// A model version ready to predict. Clones share it; it may be called from any thread.
#[derive(Clone, Debug)]
pub struct LoadedModel {
    instances: Arc<InstancePool>,
    weights: Arc<DeviceWeights>,
    signature: Arc<ModelSignature>,
}

impl LoadedModel {
    /// Uploads the version's variables and loads its plugin in a first instance. Blocks.
    ///
    /// # Errors
    /// `MissingExport` where the plugin has no predictor; `Device`; `BadSignature`; whatever its loading does wrong.
    pub fn load(host: &PluginEngine, parts: ModelParts, device: Arc<dyn Backend>) -> Result<LoadedModel, PluginError> {
        let ModelParts { plugin, variables, config, weights_meter, meter, limits, on_instance_start: started } = parts;
        plugin.predictor_export()?;
        let weights = Arc::new(DeviceWeights::upload(&variables, &*device, &weights_meter)?);
        let recipe = InstanceFactory {
            host: host.clone(),
            name: plugin.digest().hex()[..12].into(),
            plugin,
            variables: VariableNamespace::with_call_weights(&variables),
            config,
            backend: device,
            meter,
            executables: Arc::new(ExecutableCache::default()),
            limits,
            on_instance_start: started,
        };
        drop(variables);
        let (instances, signature) = InstancePool::new(recipe, &weights)?;
        Ok(LoadedModel { instances: Arc::new(instances), weights, signature: Arc::new(signature) })
    }

    /// Whether a version of this plugin, configuration and these variables could share this one's instances: it differs
    /// from this one in the elements of its variables alone, and no instance has looked at those.
    pub fn is_compatible(&self, plugin: &CompiledPlugin, config: &str, variables: &[SavedVariable]) -> bool {
        let recipe = self.instances.factory();
        recipe.plugin.digest() == plugin.digest()
            && recipe.config == config
            && recipe.variables.has_same_layout(variables)
            && self.instances.accepts_other_weights()
    }

    /// The version with these variables, which shares this one's instances and programs. To be asked for only where
    /// [`LoadedModel::is_compatible`] says so. Blocks for the upload, which `weights_meter` is charged with.
    ///
    /// # Errors
    /// `Device`.
    pub fn with_weights(&self, variables: &[SavedVariable], weights_meter: &Meter) -> Result<LoadedModel, PluginError> {
        let weights = DeviceWeights::upload(variables, &*self.instances.factory().backend, weights_meter)?;
        Ok(LoadedModel { weights: Arc::new(weights), ..self.clone() })
    }

    /// What programs and calls of this version are charged to, and of those that share its instances.
    pub fn meter(&self) -> &Meter {
        &self.instances.factory().meter
    }

    /// What the model takes and gives.
    pub fn signature(&self) -> &ModelSignature {
        &self.signature
    }

    /// Predicts for a batch of any size: `[items, item...]` for each input of the signature, in any order.
    ///
    /// The batch is split and padded with zeros to sizes that the model has graphs for. Outputs come in the signature's
    /// order, as many items each. Blocks; gives up when the deadline has passed. Parts of a split batch are computed one
    /// after the other, so the pieces of one come after those of the other.
    ///
    /// # Errors
    /// `BadInput` before the plugin is asked; `Busy`; `Deadline`; `Cancelled`; `Trap` and the other failures of its code;
    /// `BadOutput` where it breaks its signature's promise; `Device`.
    pub fn predict(
        &self,
        inputs: Vec<NamedTensorBytes>,
        terms: &PredictionOptions,
    ) -> Result<Vec<NamedTensorBytes>, PluginError> {
        let until = Instant::now() + terms.deadline;
        let mut start = 0;
        // Nothing is built for a request that comes too late.
        let is_late = terms.deadline.is_zero();
        let sizes = |items| if is_late { self.instances.sizes().ready_sizes() } else { self.batch_sizes_for(items) };
        split_and_pad(&self.signature, inputs, sizes, |padded, [count, size]| {
            let uploaded = self.upload(padded, until, terms)?;
            let given = self.run_part(uploaded, BatchSlice { start, count, size }, until, terms)?;
            start += count;
            self.download(given, until, terms)
        })
    }

    /// Whether its device calls a driver ([`Backend::calls_driver`]).
    pub fn calls_driver(&self) -> bool {
        self.instances.factory().backend.calls_driver()
    }

    /// The batch sizes that there are programs for, ascending. Where `count_items` would fill a larger one of the signature's,
    /// building that begins on a thread of its own, and later calls have it.
    pub fn batch_sizes_for(&self, items: usize) -> Vec<usize> {
        if let Some(size) = self.instances.sizes().begin_building(items) {
            let model = self.clone();
            let built = PendingBatchSize { instances: Arc::clone(&self.instances), size, is_built: false };
            // Where there is no thread, dropping `built` says that there is no such size.
            let spawned =
                std::thread::Builder::new().name("batch-size".to_owned()).spawn(move || model.build_batch_size(built));
            drop(spawned);
        }
        self.instances.sizes().ready_sizes()
    }

    /// Whether a larger batch size is being built now.
    pub fn is_building_size(&self) -> bool {
        self.instances.sizes().is_building()
    }

    /// Builds the programs for a batch size by predicting one batch of it, on an instance beside those that serve.
    fn build_batch_size(self, mut built: PendingBatchSize) {
        let size = built.size;
        let plugin = Arc::clone(&self.instances.factory().name);
        if !self.instances.has_memory_for(size) {
            let bytes_max = self.instances.factory().limits.batch_bytes_max;
            tracing::info!(%plugin, size, bytes_max, "a larger batch size is not built: it would take too much memory");
            return;
        }
        let limit = self.instances.factory().limits.load_time;
        // Nobody but this thread holds the model any more once it is unloaded.
        let others = Arc::downgrade(&self.weights);
        let cancel = CancelToken::new(move || others.strong_count() <= 1);
        let terms = PredictionOptions { cancel: Some(cancel), ..PredictionOptions::with_deadline(limit) };
        let until = Instant::now() + limit;
        let began = Instant::now();
        let whole = BatchSlice { start: 0, count: size, size };
        let done = self.default_batch(size).and_then(|inputs| self.upload(inputs, until, &terms)).and_then(|inputs| {
            let lease = self.instances.acquire_extra(&self.weights)?;
            self.compute(lease, inputs, whole, until, &terms)
        });
        match done.and_then(|outputs| self.download(outputs, until, &terms)) {
            Ok(_) => {
                built.is_built = true;
                self.instances.record_warm_bytes();
                let seconds = began.elapsed().as_secs_f64();
                tracing::info!(%plugin, size, seconds, "a larger batch size is built");
            }
            Err(error) => tracing::warn!(%plugin, size, %error, "a larger batch size is not built"),
        }
    }

    /// Predicts a batch that is on the device already, of a size that the model has a graph for, and leaves the outputs
    /// there: `instance_count` items, padded to `size`. Inputs and outputs are in the signature's order.
    ///
    /// # Errors
    /// As [`LoadedModel::predict`].
    pub fn predict_buffers(
        &self,
        inputs: Vec<(String, DeviceBuffer)>,
        count: usize,
        size: usize,
        terms: &PredictionOptions,
    ) -> Result<Vec<(String, DeviceBuffer)>, PluginError> {
        self.run_part(inputs, BatchSlice { start: 0, count, size }, Instant::now() + terms.deadline, terms)
    }

    /// Tensors on the device, charged to this version's calls; given up at `until`.
    ///
    /// # Errors
    /// `Device`; `Deadline`; `Cancelled`.
    pub fn upload(
        &self,
        inputs: Vec<NamedTensorBytes>,
        until: Instant,
        terms: &PredictionOptions,
    ) -> Result<Vec<(String, DeviceBuffer)>, PluginError> {
        let InstanceFactory { backend, meter, .. } = self.instances.factory();
        let cancel = terms.cancel_token(until);
        let upload = |(name, descriptor, bytes): NamedTensorBytes| {
            let buffer = backend.allocate(&descriptor, meter)?;
            backend.write_cancellable(&buffer, &bytes, &cancel).map_err(|error| terms.explain_error(error, until))?;
            Ok((name, buffer))
        };
        inputs.into_iter().map(upload).collect()
    }

    /// Tensors from the device. Waits for the work that produces them, at most until `until`.
    ///
    /// # Errors
    /// `Device`; `Deadline`; `Cancelled`.
    pub fn download(
        &self,
        outputs: Vec<(String, DeviceBuffer)>,
        until: Instant,
        terms: &PredictionOptions,
    ) -> Result<Vec<NamedTensorBytes>, PluginError> {
        let backend = &self.instances.factory().backend;
        let cancel = terms.cancel_token(until);
        let read = |(name, buffer): (String, DeviceBuffer)| {
            let bytes =
                backend.read_cancellable(&buffer, &cancel).map_err(|error| terms.explain_error(error, until))?;
            Ok((name, buffer.descriptor().clone(), bytes))
        };
        outputs.into_iter().map(read).collect()
    }

    /// One call of the plugin, whose outputs are checked.
    fn run_part(
        &self,
        inputs: Vec<(String, DeviceBuffer)>,
        range: BatchSlice,
        until: Instant,
        terms: &PredictionOptions,
    ) -> Result<Vec<(String, DeviceBuffer)>, PluginError> {
        let limit = terms.deadline;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(PluginError::Deadline { during: "predict", limit_ms: millis(limit) });
        }
        let patience =
            if terms.requires_idle_instance { InstanceWait::NoWait { limit } } else { InstanceWait::Within(left) };
        let lease = self.instances.acquire(&self.weights, patience)?;
        self.compute(lease, inputs, range, until, terms)
    }

    /// One call of an instance, whose outputs are checked.
    fn compute(
        &self,
        mut lease: InstanceLease<'_>,
        inputs: Vec<(String, DeviceBuffer)>,
        range: BatchSlice,
        until: Instant,
        terms: &PredictionOptions,
    ) -> Result<Vec<(String, DeviceBuffer)>, PluginError> {
        let limit = terms.deadline;
        let left = until.saturating_duration_since(Instant::now());
        let BatchSlice { start, count, size } = range;
        let (signature, sink) = (Arc::clone(&self.signature), terms.sink.clone());
        let reply = StreamingReply { signature, sink, start, size, count, until, limit, pieces: 0 };
        let call = instance_pool::InstanceCall {
            weights: Arc::clone(&self.weights),
            left,
            cancel: terms.cancel.clone(),
            reply,
        };
        let given = lease.instance().predict(inputs, call);
        let checked = given.and_then(|given| batch::check_outputs(&self.signature, given, size));
        // An error or a broken promise is an answer like another: the instance is as good as before.
        lease.set_reusable(matches!(checked, Ok(_) | Err(PluginError::Guest { .. } | PluginError::BadOutput { .. })));
        checked.map_err(|error| match error {
            PluginError::Guest { during, code: "cancelled", .. }
                if terms.sink.as_ref().is_some_and(|it| it.is_gone()) =>
            {
                PluginError::Cancelled { during }
            }
            error => error,
        })
    }

    /// A batch of which every input is its default, or zeros where it has none.
    ///
    /// # Errors
    /// `BadInput` where it would be too large for a tensor.
    pub fn default_batch(&self, items: usize) -> Result<Vec<NamedTensorBytes>, PluginError> {
        batch::default_batch(&self.signature, items)
    }

    /// Predicts the inputs' defaults, or zeros, in the smallest batch size, so that no request is the first, within what
    /// `left` is left of the time for loading. Blocks. Larger sizes are built when requests fill them.
    ///
    /// # Errors
    /// As [`LoadedModel::predict`].
    pub fn warm_up(&self, left: Duration) -> Result<(), PluginError> {
        self.predict_defaults_once(left)?;
        self.instances.record_warm_bytes();
        Ok(())
    }

    /// Predicts the inputs' defaults, or zeros, in every batch size. Blocks.
    ///
    /// # Errors
    /// As [`LoadedModel::predict`].
    pub fn predict_defaults_in_all_sizes(&self, left: Duration) -> Result<(), PluginError> {
        let (sizes, until) = (&self.signature.batch_sizes, Instant::now() + left);
        for &size in if sizes.is_empty() { &[1][..] } else { sizes } {
            let terms = PredictionOptions::with_deadline(until.saturating_duration_since(Instant::now()));
            let inputs = self.upload(self.default_batch(size)?, until, &terms)?;
            let outputs =
                self.predict_buffers(inputs, size, size, &terms).map_err(|error| self.with_load_deadline(error))?;
            self.download(outputs, until, &terms)?;
        }
        Ok(())
    }

    /// Tells of a deadline the whole time for loading, not what other parts of it left.
    fn with_load_deadline(&self, error: PluginError) -> PluginError {
        match error {
            PluginError::Deadline { during, .. } => {
                PluginError::Deadline { during, limit_ms: millis(self.instances.factory().limits.load_time) }
            }
            error => error,
        }
    }

    /// Predicts the inputs' defaults, or zeros, in the smallest batch: whether it can at all, within what `left` is left of the
    /// time for loading. Blocks.
    ///
    /// # Errors
    /// As [`LoadedModel::predict`].
    pub fn predict_defaults_once(&self, left: Duration) -> Result<(), PluginError> {
        let smallest = self.signature.batch_sizes.first().copied().unwrap_or(1);
        let tried =
            self.predict(batch::default_batch(&self.signature, smallest)?, &PredictionOptions::with_deadline(left));
        tried.map(drop).map_err(|error| self.with_load_deadline(error))
    }

    /// Instances there are now.
    pub fn instance_count(&self) -> usize {
        self.instances.instance_count()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Items of a request that one call computes: `instance_count` from `start` on, padded to `size`.
#[derive(Clone, Copy, Debug)]
struct BatchSlice {
    start: usize,
    count: usize,
    size: usize,
}

/// A batch size that is being built. Says what became of it when it is dropped, also where building it panics.
struct PendingBatchSize {
    instances: Arc<InstancePool>,
    size: usize,
    is_built: bool,
}

impl Drop for PendingBatchSize {
    fn drop(&mut self) {
        self.instances.sizes().finish_building(self.size, self.is_built);
    }
}
