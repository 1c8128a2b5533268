//! A model version in memory: its weights on the device once, and instances of its plugin that compute with them.
//!
//! An instance serves one call at a time. After a trap or a deadline it is dropped with everything it holds, and the next
//! call makes another; other calls notice nothing. Versions that differ in their weights alone share instances and
//! programs: a call brings its version's weights.

mod batch;
mod batch_sizes;
mod instances;
mod route;
mod signature;

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_device::{Backend, CancelToken, DeviceBuffer, DeviceError, Meter};
use saggar_store::checkpoint::SavedVariable;
use saggar_tensor::Descriptor;

use crate::engine::{Host, Plugin};
use crate::error::PluginError;
use crate::graphs::Executables;
use crate::limits::{
    BATCH_BYTES_DEFAULT, LEFT_BYTES_DEFAULT, LOAD_TIME_DEFAULT, MEMORY_BYTES_DEFAULT, MODEL_INSTANCES_DEFAULT,
};
use crate::replies::{PieceSink, Reply};
use crate::state::Clock;
use crate::variables::{Namespace, Weights};

use instances::{Instances, Lease, Patience, Recipe};
pub use route::{Route, Segment};
pub use signature::{ModelPort, Signature};

/// A tensor with its port's name: dense little-endian elements, row-major.
pub type NamedBytes = (String, Descriptor, Vec<u8>);

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
    pub left_bytes_max: u64,
    /// Device bytes of programs up to which larger batch sizes are built.
    pub batch_bytes_max: u64,
}

impl Default for ModelLimits {
    fn default() -> ModelLimits {
        ModelLimits {
            memory_bytes: MEMORY_BYTES_DEFAULT,
            instances_max: MODEL_INSTANCES_DEFAULT,
            load_time: LOAD_TIME_DEFAULT,
            left_bytes_max: LEFT_BYTES_DEFAULT,
            batch_bytes_max: BATCH_BYTES_DEFAULT,
        }
    }
}

/// Is told how long the making of each instance took, before its code was first called.
#[derive(Clone)]
pub struct Started(Arc<dyn Fn(Duration) + Send + Sync>);

impl Started {
    /// Calls `tell` for each instance.
    pub fn new(tell: impl Fn(Duration) + Send + Sync + 'static) -> Started {
        Started(Arc::new(tell))
    }

    fn tell(&self, time: Duration) {
        (self.0)(time);
    }
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Started")
    }
}

/// What a model version is made of.
#[derive(Debug)]
pub struct ModelParts {
    /// The plugin.
    pub plugin: Plugin,
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
    pub started: Option<Started>,
}

/// How one prediction is computed.
#[derive(Clone, Debug)]
pub struct Terms {
    /// It is given up when this has passed.
    pub deadline: Duration,
    /// Where pieces go that the plugin sends of its outputs before it is done.
    pub sink: Option<Arc<dyn PieceSink>>,
    /// Tells that nobody waits for it any more.
    pub cancel: Option<CancelToken>,
    /// Whether it is computed on an instance that is there, or given up: to load another one may take long.
    pub is_prompt: bool,
}

impl Terms {
    /// A prediction that is waited for this long, as a whole.
    pub fn within(deadline: Duration) -> Terms {
        Terms { deadline, sink: None, cancel: None, is_prompt: false }
    }

    /// Gives the host's own work for it up at `until`.
    fn token(&self, until: Instant) -> CancelToken {
        let left = until.saturating_duration_since(Instant::now());
        Clock::new(Some(left), None).token(self.cancel.clone())
    }

    /// The error of the host's own work for it, which says why it was given up where it was.
    fn explain(&self, error: DeviceError, until: Instant) -> PluginError {
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
pub fn in_parts(
    signature: &Signature,
    inputs: Vec<NamedBytes>,
    sizes: impl FnOnce(usize) -> Vec<usize>,
    mut compute: impl FnMut(Vec<NamedBytes>, [usize; 2]) -> Result<Vec<NamedBytes>, PluginError>,
) -> Result<Vec<NamedBytes>, PluginError> {
    let items = batch::items(signature, &inputs)?;
    let mut inputs = batch::Inputs::new(signature, inputs);
    let mut parts = Vec::new();
    let mut start = 0;
    for (count, size) in batch::plan(&sizes(items), items) {
        let padded = inputs.part(start, count, size)?;
        parts.push((compute(padded, [count, size])?, count));
        start += count;
    }
    batch::join(signature, parts, items)
}

/// A model version ready to predict. Clones share it; it may be called from any thread.
#[derive(Clone, Debug)]
pub struct LoadedModel {
    instances: Arc<Instances>,
    weights: Arc<Weights>,
    signature: Arc<Signature>,
}

impl LoadedModel {
    /// Uploads the version's variables and loads its plugin in a first instance. Blocks.
    ///
    /// # Errors
    /// `MissingExport` where the plugin has no predictor; `Device`; `BadSignature`; whatever its loading does wrong.
    pub fn load(host: &Host, parts: ModelParts, device: Arc<dyn Backend>) -> Result<LoadedModel, PluginError> {
        let ModelParts { plugin, variables, config, weights_meter, meter, limits, started } = parts;
        plugin.predictor()?;
        let weights = Arc::new(Weights::upload(&variables, &*device, &weights_meter)?);
        let recipe = Recipe {
            host: host.clone(),
            name: plugin.digest().hex()[..12].into(),
            plugin,
            variables: Namespace::of_weights(&variables),
            config,
            backend: device,
            meter,
            executables: Arc::new(Executables::default()),
            limits,
            started,
        };
        drop(variables);
        let (instances, signature) = Instances::new(recipe, &weights)?;
        Ok(LoadedModel { instances: Arc::new(instances), weights, signature: Arc::new(signature) })
    }

    /// Whether a version of this plugin, configuration and these variables could share this one's instances: it differs
    /// from this one in the elements of its variables alone, and no instance has looked at those.
    pub fn takes(&self, plugin: &Plugin, config: &str, variables: &[SavedVariable]) -> bool {
        let recipe = self.instances.recipe();
        recipe.plugin.digest() == plugin.digest()
            && recipe.config == config
            && recipe.variables.fits(variables)
            && self.instances.takes_other_weights()
    }

    /// The version with these variables, which shares this one's instances and programs. To be asked for only where
    /// [`LoadedModel::takes`] says so. Blocks for the upload, which `weights_meter` is charged with.
    ///
    /// # Errors
    /// `Device`.
    pub fn reweighted(&self, variables: &[SavedVariable], weights_meter: &Meter) -> Result<LoadedModel, PluginError> {
        let weights = Weights::upload(variables, &*self.instances.recipe().backend, weights_meter)?;
        Ok(LoadedModel { weights: Arc::new(weights), ..self.clone() })
    }

    /// What programs and calls of this version are charged to, and of those that share its instances.
    pub fn meter(&self) -> &Meter {
        &self.instances.recipe().meter
    }

    /// What the model takes and gives.
    pub fn signature(&self) -> &Signature {
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
    pub fn predict(&self, inputs: Vec<NamedBytes>, terms: &Terms) -> Result<Vec<NamedBytes>, PluginError> {
        let until = Instant::now() + terms.deadline;
        let mut start = 0;
        // Nothing is built for a request that comes too late.
        let is_late = terms.deadline.is_zero();
        let sizes = |items| if is_late { self.instances.sizes().ready() } else { self.batch_sizes_for(items) };
        in_parts(&self.signature, inputs, sizes, |padded, [count, size]| {
            let uploaded = self.upload(padded, until, terms)?;
            let given = self.run(uploaded, Range { start, count, size }, until, terms)?;
            start += count;
            self.download(given, until, terms)
        })
    }

    /// Whether its device calls a driver ([`Backend::calls_driver`]).
    pub fn calls_driver(&self) -> bool {
        self.instances.recipe().backend.calls_driver()
    }

    /// The batch sizes that there are programs for, ascending. Where `items` would fill a larger one of the signature's,
    /// building that begins on a thread of its own, and later calls have it.
    pub fn batch_sizes_for(&self, items: usize) -> Vec<usize> {
        if let Some(size) = self.instances.sizes().begin(items) {
            let model = self.clone();
            let built = SizeInConstruction { instances: Arc::clone(&self.instances), size, is_built: false };
            // Where there is no thread, dropping `built` says that there is no such size.
            let spawned = std::thread::Builder::new().name("batch-size".to_owned()).spawn(move || model.build(built));
            drop(spawned);
        }
        self.instances.sizes().ready()
    }

    /// Whether a larger batch size is being built now.
    pub fn is_building_size(&self) -> bool {
        self.instances.sizes().is_building()
    }

    /// Builds the programs for a batch size by predicting one batch of it, on an instance beside those that serve.
    fn build(self, mut built: SizeInConstruction) {
        let size = built.size;
        let plugin = Arc::clone(&self.instances.recipe().name);
        if !self.instances.has_room_for(size) {
            let bytes_max = self.instances.recipe().limits.batch_bytes_max;
            tracing::info!(%plugin, size, bytes_max, "a larger batch size is not built: it would take too much memory");
            return;
        }
        let limit = self.instances.recipe().limits.load_time;
        // Nobody but this thread holds the model any more once it is unloaded.
        let others = Arc::downgrade(&self.weights);
        let cancel = CancelToken::new(move || others.strong_count() <= 1);
        let terms = Terms { cancel: Some(cancel), ..Terms::within(limit) };
        let until = Instant::now() + limit;
        let began = Instant::now();
        let whole = Range { start: 0, count: size, size };
        let done = self.example(size).and_then(|inputs| self.upload(inputs, until, &terms)).and_then(|inputs| {
            let lease = self.instances.take_beside(&self.weights)?;
            self.compute(lease, inputs, whole, until, &terms)
        });
        match done.and_then(|outputs| self.download(outputs, until, &terms)) {
            Ok(_) => {
                built.is_built = true;
                self.instances.set_warm();
                let seconds = began.elapsed().as_secs_f64();
                tracing::info!(%plugin, size, seconds, "a larger batch size is built");
            }
            Err(error) => tracing::warn!(%plugin, size, %error, "a larger batch size is not built"),
        }
    }

    /// Predicts a batch that is on the device already, of a size that the model has a graph for, and leaves the outputs
    /// there: `count` items, padded to `size`. Inputs and outputs are in the signature's order.
    ///
    /// # Errors
    /// As [`LoadedModel::predict`].
    pub fn predict_buffers(
        &self,
        inputs: Vec<(String, DeviceBuffer)>,
        count: usize,
        size: usize,
        terms: &Terms,
    ) -> Result<Vec<(String, DeviceBuffer)>, PluginError> {
        self.run(inputs, Range { start: 0, count, size }, Instant::now() + terms.deadline, terms)
    }

    /// Tensors on the device, charged to this version's calls; given up at `until`.
    ///
    /// # Errors
    /// `Device`; `Deadline`; `Cancelled`.
    pub fn upload(
        &self,
        inputs: Vec<NamedBytes>,
        until: Instant,
        terms: &Terms,
    ) -> Result<Vec<(String, DeviceBuffer)>, PluginError> {
        let Recipe { backend, meter, .. } = self.instances.recipe();
        let cancel = terms.token(until);
        let upload = |(name, descriptor, bytes): NamedBytes| {
            let buffer = backend.allocate(&descriptor, meter)?;
            backend.write_cancellable(&buffer, &bytes, &cancel).map_err(|error| terms.explain(error, until))?;
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
        terms: &Terms,
    ) -> Result<Vec<NamedBytes>, PluginError> {
        let backend = &self.instances.recipe().backend;
        let cancel = terms.token(until);
        let read = |(name, buffer): (String, DeviceBuffer)| {
            let bytes = backend.read_cancellable(&buffer, &cancel).map_err(|error| terms.explain(error, until))?;
            Ok((name, buffer.descriptor().clone(), bytes))
        };
        outputs.into_iter().map(read).collect()
    }

    /// One call of the plugin, whose outputs are checked.
    fn run(
        &self,
        inputs: Vec<(String, DeviceBuffer)>,
        range: Range,
        until: Instant,
        terms: &Terms,
    ) -> Result<Vec<(String, DeviceBuffer)>, PluginError> {
        let limit = terms.deadline;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(PluginError::Deadline { during: "predict", limit_ms: millis(limit) });
        }
        let patience = if terms.is_prompt { Patience::Prompt { limit } } else { Patience::Within(left) };
        let lease = self.instances.take(&self.weights, patience)?;
        self.compute(lease, inputs, range, until, terms)
    }

    /// One call of an instance, whose outputs are checked.
    fn compute(
        &self,
        mut lease: Lease<'_>,
        inputs: Vec<(String, DeviceBuffer)>,
        range: Range,
        until: Instant,
        terms: &Terms,
    ) -> Result<Vec<(String, DeviceBuffer)>, PluginError> {
        let limit = terms.deadline;
        let left = until.saturating_duration_since(Instant::now());
        let Range { start, count, size } = range;
        let (signature, sink) = (Arc::clone(&self.signature), terms.sink.clone());
        let reply = Reply { signature, sink, start, size, count, until, limit, pieces: 0 };
        let call = instances::Terms { weights: Arc::clone(&self.weights), left, cancel: terms.cancel.clone(), reply };
        let given = lease.instance().predict(inputs, call);
        let checked = given.and_then(|given| batch::check(&self.signature, given, size));
        // An error or a broken promise is an answer like another: the instance is as good as before.
        lease.set_whole(matches!(checked, Ok(_) | Err(PluginError::Guest { .. } | PluginError::BadOutput { .. })));
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
    pub fn example(&self, items: usize) -> Result<Vec<NamedBytes>, PluginError> {
        batch::first(&self.signature, items)
    }

    /// Predicts the inputs' defaults, or zeros, in the smallest batch size, so that no request is the first, within what
    /// `left` is left of the time for loading. Blocks. Larger sizes are built when requests fill them.
    ///
    /// # Errors
    /// As [`LoadedModel::predict`].
    pub fn warm(&self, left: Duration) -> Result<(), PluginError> {
        self.try_once(left)?;
        self.instances.set_warm();
        Ok(())
    }

    /// Predicts the inputs' defaults, or zeros, in every batch size. Blocks.
    ///
    /// # Errors
    /// As [`LoadedModel::predict`].
    pub fn try_all(&self, left: Duration) -> Result<(), PluginError> {
        let (sizes, until) = (&self.signature.batch_sizes, Instant::now() + left);
        for &size in if sizes.is_empty() { &[1][..] } else { sizes } {
            let terms = Terms::within(until.saturating_duration_since(Instant::now()));
            let inputs = self.upload(self.example(size)?, until, &terms)?;
            let outputs = self.predict_buffers(inputs, size, size, &terms).map_err(|error| self.of_loading(error))?;
            self.download(outputs, until, &terms)?;
        }
        Ok(())
    }

    /// Tells of a deadline the whole time for loading, not what other parts of it left.
    fn of_loading(&self, error: PluginError) -> PluginError {
        match error {
            PluginError::Deadline { during, .. } => {
                PluginError::Deadline { during, limit_ms: millis(self.instances.recipe().limits.load_time) }
            }
            error => error,
        }
    }

    /// Predicts the inputs' defaults, or zeros, in the smallest batch: whether it can at all, within what `left` is left of the
    /// time for loading. Blocks.
    ///
    /// # Errors
    /// As [`LoadedModel::predict`].
    pub fn try_once(&self, left: Duration) -> Result<(), PluginError> {
        let smallest = self.signature.batch_sizes.first().copied().unwrap_or(1);
        let tried = self.predict(batch::first(&self.signature, smallest)?, &Terms::within(left));
        tried.map(drop).map_err(|error| self.of_loading(error))
    }

    /// Instances there are now.
    pub fn instances(&self) -> usize {
        self.instances.count()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Items of a request that one call computes: `count` from `start` on, padded to `size`.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: usize,
    count: usize,
    size: usize,
}

/// A batch size that is being built. Says what became of it when it is dropped, also where building it panics.
struct SizeInConstruction {
    instances: Arc<Instances>,
    size: usize,
    is_built: bool,
}

impl Drop for SizeInConstruction {
    fn drop(&mut self) {
        self.instances.sizes().finish(self.size, self.is_built);
    }
}
