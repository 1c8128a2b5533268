//! A loaded model version: its weights, uploaded to the device once, and a pool of plugin instances that compute with
//! them.
//!
//! An instance serves one call at a time. After a trap or a deadline it is dropped with everything it holds, and the
//! next call creates another one; other calls are not affected. Versions that differ only in their weights share
//! instances and programs: each call brings the weights of its version.

mod batch;
mod batch_sizes;
mod image_inputs;
mod instance_pool;
pub(crate) mod model_limits;
pub(crate) mod model_port;
mod named_tensor;
pub(crate) mod prediction_options;
pub(crate) mod route;
pub(crate) mod signature;
mod weight_kinds;

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_device::{Backend, CancelToken, DeviceBuffer, Meter};
use saggar_store::ImageInputs;
use saggar_store::checkpoint::SavedVariable;

use crate::engine::{CompiledPlugin, PluginEngine};
use crate::error::PluginError;
use crate::graphs::compiled_graph::ExecutableCache;
use crate::guest_error_code::GuestErrorCode;
use crate::http_handler::handler_call::{HANDLE, HandlerOptions, HandlerRequest, HandlerResponse};
use crate::streaming::reply::StreamingReply;
use crate::variables::device_weights::DeviceWeights;
use crate::variables::namespace::VariableNamespace;

use instance_pool::{InstanceFactory, InstanceLease, InstancePool, InstanceWait};
pub use model_limits::{InstanceStartHook, ModelLimits};
pub use model_port::ModelPort;
pub use named_tensor::NamedTensor;
pub use prediction_options::PredictionOptions;
use prediction_options::millis;
pub use route::{ModelRoute, RouteSegment};
pub use signature::ModelSignature;
pub use weight_kinds::DeclaredWeights;

/// The parts that [`LoadedModel::load`] builds a model version from.
#[derive(Debug)]
pub struct ModelParts {
    /// The plugin.
    pub plugin: CompiledPlugin,
    /// The version's variables.
    pub variables: Vec<SavedVariable>,
    /// The configuration that the training passed to `publish`.
    pub config: String,
    /// The preprocessing of its image inputs.
    pub inputs: ImageInputs,
    /// The meter charged with the weights.
    pub weights_meter: Meter,
    /// The meter charged with programs and with tensors of calls.
    pub meter: Meter,
    /// Limits of its instances.
    pub limits: ModelLimits,
    /// The callback for each new instance, or `None`.
    pub on_instance_start: Option<InstanceStartHook>,
}

impl ModelParts {
    /// Returns the factory of the version's instances, which ask for the variables of `namespace`.
    fn into_factory(
        self,
        host: &PluginEngine,
        namespace: VariableNamespace,
        device: Arc<dyn Backend>,
    ) -> InstanceFactory {
        InstanceFactory {
            host: host.clone(),
            name: self.plugin.digest().hex()[..12].into(),
            plugin: self.plugin,
            variables: namespace,
            config: self.config,
            backend: device,
            meter: self.meter,
            executables: Arc::new(ExecutableCache::default()),
            limits: self.limits,
            on_instance_start: self.on_instance_start,
        }
    }
}

/// Splits a batch of any size into parts, pads each with zeros, computes them and concatenates the outputs.
///
/// `sizes` returns the batch sizes to use for a number of items. `compute` gets a padded part, its number of items and
/// its padded size.
///
/// # Errors
/// `BadInput`; the errors of `compute`.
pub fn split_and_pad(
    signature: &ModelSignature,
    inputs: Vec<NamedTensor>,
    sizes: impl FnOnce(usize) -> Vec<usize>,
    mut compute: impl FnMut(Vec<NamedTensor>, [usize; 2]) -> Result<Vec<NamedTensor>, PluginError>,
) -> Result<Vec<NamedTensor>, PluginError> {
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

/// A model version ready to predict. Clones share it; any thread can call it.
#[derive(Clone, Debug)]
pub struct LoadedModel {
    instances: Arc<InstancePool>,
    weights: Arc<DeviceWeights>,
    /// The signature for clients: image inputs with preprocessing are the pixels that it starts from.
    signature: Arc<ModelSignature>,
    inputs: Arc<ImageInputs>,
}

impl LoadedModel {
    /// Uploads the version's variables and loads its plugin in a first instance. Blocks.
    ///
    /// # Errors
    /// `MissingExport` if the plugin has no predictor; `Device`; `BadSignature`; the errors of loading an instance.
    pub fn load(host: &PluginEngine, parts: ModelParts, device: Arc<dyn Backend>) -> Result<LoadedModel, PluginError> {
        parts.plugin.predictor_export()?;
        let weights = Arc::new(DeviceWeights::upload(&parts.variables, &*device, &parts.weights_meter)?);
        let namespace = VariableNamespace::with_call_weights(&parts.variables);
        let inputs = Arc::new(parts.inputs.clone());
        let recipe = parts.into_factory(host, namespace, device);
        let (instances, signature) = InstancePool::new(recipe, &weights)?;
        let signature = Arc::new(image_inputs::client_signature(signature, &inputs)?);
        Ok(LoadedModel { instances: Arc::new(instances), weights, signature, inputs })
    }

    /// Returns whether a version with this plugin, configuration, preprocessing of inputs and these variables could
    /// share this version's instances: it differs only in the elements of its variables, and no instance has read those.
    pub fn is_compatible(
        &self,
        plugin: &CompiledPlugin,
        (config, inputs): (&str, &ImageInputs),
        variables: &[SavedVariable],
    ) -> bool {
        let recipe = self.instances.factory();
        recipe.plugin.digest() == plugin.digest()
            && recipe.config == config
            && *self.inputs == *inputs
            && recipe.variables.has_same_layout(variables)
            && self.instances.accepts_other_weights()
    }

    /// Returns the version with these variables, which shares this one's instances and programs. The caller must check
    /// [`LoadedModel::is_compatible`] first. Blocks for the upload, which is charged to `weights_meter`.
    ///
    /// # Errors
    /// `Device`.
    pub fn with_weights(&self, variables: &[SavedVariable], weights_meter: &Meter) -> Result<LoadedModel, PluginError> {
        let weights = DeviceWeights::upload(variables, &*self.instances.factory().backend, weights_meter)?;
        Ok(LoadedModel { weights: Arc::new(weights), ..self.clone() })
    }

    /// Returns the meter charged with the programs and calls of this version and of those that share its instances.
    pub fn meter(&self) -> &Meter {
        &self.instances.factory().meter
    }

    /// Returns the model's inputs, outputs, batch sizes and routes.
    pub fn signature(&self) -> &ModelSignature {
        &self.signature
    }

    /// Predicts for a batch of any size: `[items, item...]` for each input of the signature, in any order.
    ///
    /// The batch is split and padded with zeros to sizes that the model has graphs for. Outputs are in the signature's
    /// order, with as many items as the inputs. Blocks, at most until the deadline. Parts of a split batch are computed
    /// in order, so all pieces of a part come before those of the next.
    ///
    /// # Errors
    /// `BadInput` before the plugin is called; `Busy`; `Deadline`; `Cancelled`; `Trap` and other failures of the
    /// plugin's code; `BadOutput` if the outputs differ from the signature; `Device`.
    pub fn predict(
        &self,
        inputs: Vec<NamedTensor>,
        terms: &PredictionOptions,
    ) -> Result<Vec<NamedTensor>, PluginError> {
        let until = Instant::now() + terms.deadline;
        let mut start = 0;
        // A request that is already past its deadline does not start the building of a batch size.
        let is_late = terms.deadline.is_zero();
        let sizes = |items| if is_late { self.instances.sizes().ready_sizes() } else { self.batch_sizes_for(items) };
        split_and_pad(&self.signature, inputs, sizes, |padded, [count, size]| {
            let uploaded = self.upload(padded, until, terms)?;
            let given = self.run_part(uploaded, BatchSlice { start, count, size }, until, terms)?;
            start += count;
            self.download(given, until, terms)
        })
    }

    /// Returns whether its device calls a driver ([`Backend::calls_driver`]).
    pub fn calls_driver(&self) -> bool {
        self.instances.factory().backend.calls_driver()
    }

    /// Returns the batch sizes that have programs, ascending. If `items` would fill a larger size of the signature,
    /// starts building that one in a new thread; later calls can use it.
    pub fn batch_sizes_for(&self, items: usize) -> Vec<usize> {
        if let Some(size) = self.instances.sizes().begin_building(items) {
            let model = self.clone();
            let built = PendingBatchSize { instances: Arc::clone(&self.instances), size, is_built: false };
            // If the thread cannot be started, dropping `built` records that the size failed.
            let spawned =
                std::thread::Builder::new().name("batch-size".to_owned()).spawn(move || model.build_batch_size(built));
            drop(spawned);
        }
        self.instances.sizes().ready_sizes()
    }

    /// Returns whether a larger batch size is being built.
    pub fn is_building_size(&self) -> bool {
        self.instances.sizes().is_building()
    }

    /// Builds the programs for a batch size by predicting one batch of it, on an instance beside the serving ones.
    fn build_batch_size(self, mut built: PendingBatchSize) {
        let size = built.size;
        let plugin = Arc::clone(&self.instances.factory().name);
        if !self.instances.has_memory_for(size) {
            let bytes_max = self.instances.factory().limits.batch_bytes_max;
            tracing::info!(%plugin, size, bytes_max, "a larger batch size is not built: it would take too much memory");
            return;
        }
        let limit = self.instances.factory().limits.load_time;
        // Once the model is unloaded, this thread is the only holder of its weights.
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
                tracing::info!(%plugin, size, seconds, "built a larger batch size");
            }
            Err(error) => tracing::warn!(%plugin, size, %error, "a larger batch size is not built"),
        }
    }

    /// Predicts a batch that is already on the device and leaves the outputs there: `count` items, padded to `size`,
    /// which the model must have a graph for. Inputs and outputs are in the signature's order.
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

    /// Returns whether the host preprocesses an input before the plugin gets it.
    pub fn preprocesses_inputs(&self) -> bool {
        !self.inputs.is_empty()
    }

    /// Preprocesses inputs and uploads them to the device, charged to this version's calls, at most until `until`.
    ///
    /// # Errors
    /// `Device`; `Deadline`; `Cancelled`.
    pub fn upload(
        &self,
        inputs: Vec<NamedTensor>,
        until: Instant,
        terms: &PredictionOptions,
    ) -> Result<Vec<(String, DeviceBuffer)>, PluginError> {
        let InstanceFactory { backend, meter, .. } = self.instances.factory();
        let cancel = terms.cancel_token(until);
        let upload = |tensor: NamedTensor| {
            let NamedTensor { name, descriptor, bytes } = image_inputs::preprocess(tensor, &self.inputs)?;
            let buffer = backend.allocate(&descriptor, meter)?;
            backend.write_cancellable(&buffer, &bytes, &cancel).map_err(|error| terms.explain_error(error, until))?;
            Ok((name, buffer))
        };
        inputs.into_iter().map(upload).collect()
    }

    /// Downloads tensors from the device. Waits for the work that produces them, at most until `until`.
    ///
    /// # Errors
    /// `Device`; `Deadline`; `Cancelled`.
    pub fn download(
        &self,
        outputs: Vec<(String, DeviceBuffer)>,
        until: Instant,
        terms: &PredictionOptions,
    ) -> Result<Vec<NamedTensor>, PluginError> {
        let backend = &self.instances.factory().backend;
        let cancel = terms.cancel_token(until);
        let read = |(name, buffer): (String, DeviceBuffer)| {
            let bytes =
                backend.read_cancellable(&buffer, &cancel).map_err(|error| terms.explain_error(error, until))?;
            Ok(NamedTensor { name, descriptor: buffer.descriptor().clone(), bytes })
        };
        outputs.into_iter().map(read).collect()
    }

    /// Runs one call of the plugin and checks its outputs.
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

    /// Runs one call on an instance and checks its outputs.
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
        // An error or a wrong output is a normal answer of the plugin: its instance can be reused.
        lease.set_reusable(matches!(checked, Ok(_) | Err(PluginError::Guest { .. } | PluginError::BadOutput { .. })));
        checked.map_err(|error| match error {
            PluginError::Guest { during, code: GuestErrorCode::Cancelled, .. }
                if terms.sink.as_ref().is_some_and(|it| it.is_gone()) =>
            {
                PluginError::Cancelled { during }
            }
            error => error,
        })
    }

    /// Answers an HTTP request with the plugin's own code, in an instance that serves no other call meanwhile. Returns
    /// `None` if the response was streamed to the sink of `options`. Blocks, at most until the deadline.
    ///
    /// # Errors
    /// `MissingExport` if the plugin has no handlers; `Busy`; `Deadline`; `Cancelled`; `Trap` and other failures of the
    /// plugin's code; `BadResponse`.
    pub fn handle(
        &self,
        request: HandlerRequest,
        options: &HandlerOptions,
    ) -> Result<Option<HandlerResponse>, PluginError> {
        let left = options.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(PluginError::Deadline { during: HANDLE, limit_ms: millis(options.limit) });
        }
        let mut lease = self.instances.acquire(&self.weights, InstanceWait::Within(left))?;
        let answer = lease.instance().handle(request, Arc::clone(&self.weights), options);
        // An error or a wrong response is a normal answer of the plugin: its instance can be reused.
        lease.set_reusable(matches!(answer, Ok(_) | Err(PluginError::Guest { .. } | PluginError::BadResponse { .. })));
        answer.map_err(|error| match error {
            PluginError::Guest { during, code: GuestErrorCode::Cancelled, .. } if options.cancel.is_cancelled() => {
                PluginError::Cancelled { during }
            }
            error => error,
        })
    }

    /// Returns a batch in which every input has its default, or zeros if it has none.
    ///
    /// # Errors
    /// `BadInput` if the batch would be too large for a tensor.
    pub fn default_batch(&self, items: usize) -> Result<Vec<NamedTensor>, PluginError> {
        batch::default_batch(&self.signature, items)
    }

    /// Predicts the inputs' defaults, or zeros, once in the smallest batch size, so that the first request is not slow.
    /// `left` is the rest of the time limit for loading. Blocks. Larger sizes are built when requests fill them.
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

    /// Puts the whole time limit for loading into a deadline error, instead of the time that was left.
    fn with_load_deadline(&self, error: PluginError) -> PluginError {
        match error {
            PluginError::Deadline { during, .. } => {
                PluginError::Deadline { during, limit_ms: millis(self.instances.factory().limits.load_time) }
            }
            error => error,
        }
    }

    /// Predicts the inputs' defaults, or zeros, in the smallest batch size, to check that the model can predict. `left`
    /// is the rest of the time limit for loading. Blocks.
    ///
    /// # Errors
    /// As [`LoadedModel::predict`].
    pub fn predict_defaults_once(&self, left: Duration) -> Result<(), PluginError> {
        let smallest = self.signature.batch_sizes.first().copied().unwrap_or(1);
        let tried =
            self.predict(batch::default_batch(&self.signature, smallest)?, &PredictionOptions::with_deadline(left));
        tried.map(drop).map_err(|error| self.with_load_deadline(error))
    }

    /// Returns the number of instances.
    pub fn instance_count(&self) -> usize {
        self.instances.instance_count()
    }
}

/// The items of a request that one call computes: `count` items from `start`, padded to `size`.
#[derive(Clone, Copy, Debug)]
struct BatchSlice {
    start: usize,
    count: usize,
    size: usize,
}

/// A batch size that is being built. Dropping it records the result, even if building panics.
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
