//! A model version in memory: its weights on the device once, and instances of its plugin that share them.
//!
//! An instance serves one call at a time. After a trap or a deadline it is dropped with everything it holds, and the next
//! call makes another; other calls notice nothing.

mod batch;
mod instances;
mod signature;

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_device::{Backend, Meter};
use saggar_store::checkpoint::SavedVariable;
use saggar_tensor::Descriptor;

use crate::engine::{Host, Plugin};
use crate::error::PluginError;
use crate::graphs::Executables;
use crate::limits::{LOAD_TIME_DEFAULT, MEMORY_BYTES_DEFAULT, MODEL_INSTANCES_DEFAULT};
use crate::replies::{PieceSink, Reply};
use crate::variables::Namespace;

use instances::{Instances, Version};
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
}

impl Default for ModelLimits {
    fn default() -> ModelLimits {
        ModelLimits {
            memory_bytes: MEMORY_BYTES_DEFAULT,
            instances_max: MODEL_INSTANCES_DEFAULT,
            load_time: LOAD_TIME_DEFAULT,
        }
    }
}

/// A model version ready to predict. Clones share it; it may be called from any thread.
#[derive(Clone, Debug)]
pub struct LoadedModel {
    instances: Arc<Instances>,
    signature: Arc<Signature>,
    load_time: Duration,
}

impl LoadedModel {
    /// Uploads the version's variables and loads its plugin in a first instance. Blocks.
    ///
    /// `meter` is charged with the weights, with programs and with tensors of calls. `config` is what the training gave to
    /// `publish`.
    ///
    /// # Errors
    /// `MissingExport` where the plugin has no predictor; `Device`; `BadSignature`; whatever its loading does wrong.
    pub fn load(
        host: &Host,
        plugin: &Plugin,
        variables: Vec<SavedVariable>,
        config: &str,
        device: Arc<dyn Backend>,
        meter: Meter,
        limits: ModelLimits,
    ) -> Result<LoadedModel, PluginError> {
        plugin.predictor()?;
        let weights = Namespace::sealed(&variables, &*device, &meter)?;
        drop(variables);
        let version = Version {
            host: host.clone(),
            plugin: plugin.clone(),
            name: plugin.digest().hex()[..12].into(),
            weights,
            config: config.to_owned(),
            backend: device,
            meter,
            executables: Arc::new(Executables::default()),
            limits,
        };
        let mut first = version.instance()?;
        let signature = first.signature(limits.load_time)?;
        let instances = Arc::new(Instances::new(version, first));
        Ok(LoadedModel { instances, signature: Arc::new(signature), load_time: limits.load_time })
    }

    /// What the model takes and gives.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Predicts for a batch of any size: `[items, item...]` for each input of the signature, in any order.
    ///
    /// The batch is split and padded with zeros to sizes that the model has graphs for. Outputs come in the signature's
    /// order, as many items each. Blocks; gives up when `deadline` has passed.
    ///
    /// # Errors
    /// `BadInput` before the plugin is asked; `Busy`; `Deadline`; `Trap` and the other failures of its code; `BadOutput`
    /// where it breaks its signature's promise; `Device`.
    pub fn predict(&self, inputs: Vec<NamedBytes>, deadline: Duration) -> Result<Vec<NamedBytes>, PluginError> {
        self.predict_with(inputs, deadline, None)
    }

    /// Predicts, and gives `sink` what the plugin sends of each output before it is done. Parts of a split batch are
    /// computed one after the other, so the pieces of one come after those of the other.
    ///
    /// # Errors
    /// As [`LoadedModel::predict`]; `Guest` with the code `cancelled` where the sink was gone and the plugin gave up.
    pub fn predict_with(
        &self,
        inputs: Vec<NamedBytes>,
        deadline: Duration,
        sink: Option<Arc<dyn PieceSink>>,
    ) -> Result<Vec<NamedBytes>, PluginError> {
        let until = Instant::now() + deadline;
        let items = batch::items(&self.signature, &inputs)?;
        let mut lease = self.instances.take(deadline)?;
        let mut outputs = batch::Outputs::new(&self.signature, items)?;
        let mut start = 0;
        for (count, size) in batch::plan(&self.signature.batch_sizes, items) {
            let mut padded = batch::slice(&self.signature, &inputs, start, count, size)?;
            if self.signature.batch_sizes.is_empty() {
                batch::unwrap(&self.signature, &mut padded);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(PluginError::Deadline { during: "predict", limit_ms: deadline.as_millis() as u64 });
            }
            let (signature, sink) = (Arc::clone(&self.signature), sink.clone());
            let reply = Reply { signature, sink, start, size, count, until, limit: deadline, pieces: 0 };
            let given = lease.instance().predict(padded, left, deadline, reply);
            let checked = given.and_then(|given| {
                let given = if self.signature.batch_sizes.is_empty() { batch::wrap(given)? } else { given };
                batch::check(&self.signature, given, size)
            });
            // An error or a broken promise is an answer like another: the instance is as good as before.
            lease.set_whole(matches!(checked, Ok(_) | Err(PluginError::Guest { .. } | PluginError::BadOutput { .. })));
            outputs.append(checked?, count);
            start += count;
        }
        Ok(outputs.finish())
    }

    /// Predicts the inputs' defaults, or zeros, in every batch size, so that no request is the first. Blocks.
    ///
    /// # Errors
    /// As [`LoadedModel::predict`].
    pub fn warm(&self) -> Result<(), PluginError> {
        let sizes = &self.signature.batch_sizes;
        for &size in if sizes.is_empty() { &[1][..] } else { sizes } {
            self.predict(batch::first(&self.signature, size)?, self.load_time)?;
        }
        Ok(())
    }

    /// Instances there are now.
    pub fn instances(&self) -> usize {
        self.instances.count()
    }
}
