//! Saved variables on a device: the weights of a model version.

use std::collections::BTreeMap;
use std::sync::Arc;

use saggar_device::{Backend, DeviceBuffer, DeviceError, Meter};
use saggar_store::checkpoint::{SavedVariable, VariableKind};
use saggar_tensor::Descriptor;

use super::weights_mismatch::WeightsMismatch;
use crate::error::PluginError;

/// The weights of one model version on the device, in the order of the variables' names.
#[derive(Debug)]
pub(crate) struct DeviceWeights(pub(super) Vec<DeviceBuffer>);

impl DeviceWeights {
    /// Uploads the variables of a version, charged to `meter`.
    ///
    /// # Errors
    /// `InsufficientMemory` before any of them is uploaded; the device's errors.
    pub(crate) fn upload(
        saved: &[SavedVariable],
        backend: &dyn Backend,
        meter: &Meter,
    ) -> Result<DeviceWeights, DeviceError> {
        check_memory(saved, backend, meter)?;
        let mut sorted: Vec<&SavedVariable> = saved.iter().collect();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        sorted
            .into_iter()
            .map(|saved| upload_variable(saved, backend, meter))
            .collect::<Result<_, _>>()
            .map(DeviceWeights)
    }
}

/// The weights of an instance's current call, if its variables take their elements from the call.
#[derive(Debug, Default)]
pub(crate) struct CallWeights {
    current: Option<Arc<DeviceWeights>>,
    /// Whether state that outlives a call depends on its weights: the plugin has read some, or computed with them while
    /// it loaded. Such an instance cannot be used with other weights.
    were_read: bool,
    /// The first tensor that the plugin asked for and the weights do not have as declared.
    mismatch: Option<WeightsMismatch>,
    /// The kinds that the plugin declared, by name, if the namespace adopts them.
    declared_kinds: BTreeMap<String, VariableKind>,
}

impl CallWeights {
    /// Sets the weights of the next call, or `None` after a call.
    pub(crate) fn set(&mut self, weights: Option<Arc<DeviceWeights>>) {
        self.current = weights;
    }

    /// Returns the weights of the current call.
    pub(crate) fn current(&self) -> Option<&DeviceWeights> {
        self.current.as_deref()
    }

    /// Records that state of the instance depends on the weights.
    pub(crate) fn record_read(&mut self) {
        self.were_read = true;
    }

    /// Records that the weights do not have a tensor as the plugin declares it. Only the first one is kept.
    pub(crate) fn record_mismatch(&mut self, name: &str, declared: &Descriptor, given: impl FnOnce() -> String) {
        self.mismatch.get_or_insert_with(|| WeightsMismatch {
            name: name.to_owned(),
            declared: declared.to_string(),
            given: given(),
        });
    }

    /// Records the kind that the plugin declares for a variable.
    pub(crate) fn record_kind(&mut self, name: String, kind: VariableKind) {
        self.declared_kinds.insert(name, kind);
    }

    /// Returns the recorded kinds by name.
    pub(crate) fn declared_kinds(&self) -> &BTreeMap<String, VariableKind> {
        &self.declared_kinds
    }

    /// Returns the error of a failed load. If the plugin failed after it asked for a tensor that the weights do not have
    /// as declared, that is the error.
    pub(crate) fn explain_load_error(&mut self, error: PluginError) -> PluginError {
        match (self.mismatch.take(), error) {
            (Some(mismatch), PluginError::Guest { .. } | PluginError::Trap { .. }) => mismatch.into(),
            (_, error) => error,
        }
    }

    /// Returns whether state of the instance depends on the weights of a call.
    pub(crate) fn were_read(&self) -> bool {
        self.were_read
    }
}

/// Checks that all of them fit on the device, before any of them is uploaded.
pub(super) fn check_memory(saved: &[SavedVariable], backend: &dyn Backend, meter: &Meter) -> Result<(), DeviceError> {
    // An adapter stores each element that is narrower than a word in a whole word.
    let target = backend.target();
    let bytes = saved.iter().map(|saved| target.tensor_bytes(&saved.descriptor)).fold(0, u64::saturating_add);
    backend.check_memory(&format_args!("a model's {} variables", saved.len()), bytes, meter)
}

pub(super) fn upload_variable(
    saved: &SavedVariable,
    backend: &dyn Backend,
    meter: &Meter,
) -> Result<DeviceBuffer, DeviceError> {
    let buffer = backend.allocate(&saved.descriptor, meter)?;
    overwrite(backend, &buffer, &saved.bytes)?;
    Ok(buffer)
}

/// Writes saved elements, unless the device that saved them stores no data.
pub(super) fn overwrite(backend: &dyn Backend, buffer: &DeviceBuffer, bytes: &[u8]) -> Result<(), DeviceError> {
    let was_kept = backend.stores_data() || !bytes.is_empty();
    if was_kept { backend.write(buffer, bytes) } else { Ok(()) }
}
