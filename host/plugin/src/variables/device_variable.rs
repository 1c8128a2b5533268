//! One variable on the device.

use std::sync::Arc;

use saggar_device::{Backend, CancelToken, DeviceBuffer, Meter, check_host_memory};
use saggar_store::checkpoint::{SavedVariable, VariableKind};
use saggar_tensor::{Descriptor, Shape};

use super::device_weights::{DeviceWeights, overwrite};
use crate::host_error::HostError;
use crate::initializers::{VariableInitializer, initial_elements};

/// One tensor of state. Clones refer to the same variable.
#[derive(Clone, Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct DeviceVariable(pub(super) Arc<DeviceVariableInner>);

#[derive(Debug)]
pub(super) struct DeviceVariableInner {
    pub(super) name: String,
    pub(super) kind: VariableKind,
    /// Set for a variable of a published version, which cannot be changed.
    pub(super) sealed: bool,
    pub(super) memory: VariableStorage,
}

/// The storage of a variable's elements.
#[derive(Debug)]
pub(super) enum VariableStorage {
    /// In a separate buffer.
    Own(DeviceBuffer),
    /// At this index of the weights that the call brings.
    Weights { place: usize, descriptor: Descriptor },
}

impl DeviceVariable {
    /// Creates a variable on the device.
    ///
    /// # Errors
    /// Invalid argument for its initial values; the device's errors.
    pub(crate) fn create(
        backend: &dyn Backend,
        meter: &Meter,
        seed: u64,
        (name, kind): (&str, VariableKind),
        descriptor: &Descriptor,
        initializer: VariableInitializer,
        cancel: &CancelToken,
    ) -> Result<DeviceVariable, HostError> {
        // A variable that does not fit is refused before its initial values are generated.
        let buffer = backend.allocate(descriptor, meter)?;
        if let Some(bytes) = initial_values(backend, seed, name, descriptor, initializer, cancel)? {
            backend.write_cancellable(&buffer, &bytes, cancel)?;
        }
        Ok(DeviceVariable(Arc::new(DeviceVariableInner {
            name: name.to_owned(),
            kind,
            sealed: false,
            memory: VariableStorage::Own(buffer),
        })))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn descriptor(&self) -> &Descriptor {
        match &self.0.memory {
            VariableStorage::Own(buffer) => buffer.descriptor(),
            VariableStorage::Weights { descriptor, .. } => descriptor,
        }
    }

    /// Returns the buffer of the variable's elements: its own, or the one in `weights`.
    ///
    /// # Errors
    /// Traps if the call brings no weights for the variable, which is a bug in this host.
    pub(crate) fn buffer<'b>(&'b self, weights: Option<&'b DeviceWeights>) -> Result<&'b DeviceBuffer, HostError> {
        match &self.0.memory {
            VariableStorage::Own(buffer) => Ok(buffer),
            VariableStorage::Weights { place, .. } => weights
                .and_then(|weights| weights.0.get(*place))
                .ok_or_else(|| HostError::Trap(wasmtime::Error::msg("a call without the weights of its variables"))),
        }
    }

    /// Returns the purpose of the variable.
    pub(crate) fn kind(&self) -> VariableKind {
        self.0.kind
    }

    /// Returns whether its elements come with each call.
    pub(crate) fn is_weight(&self) -> bool {
        matches!(self.0.memory, VariableStorage::Weights { .. })
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.0.sealed
    }

    /// Returns a number that identifies the variable in maps; two namespaces can use the same name.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Overwrites the variable with its saved elements.
    ///
    /// # Errors
    /// Invalid argument if the saved variable has another shape, data type or kind; the device's errors.
    pub(crate) fn restore(&self, saved: &SavedVariable, backend: &dyn Backend) -> Result<(), HostError> {
        self.check(&saved.descriptor, saved.kind)?;
        Ok(overwrite(backend, self.buffer(None)?, &saved.bytes)?)
    }

    pub(super) fn check(&self, descriptor: &Descriptor, kind: VariableKind) -> Result<(), HostError> {
        if self.descriptor() != descriptor {
            let message = format!("is {}, not {descriptor}", self.descriptor());
            return Err(HostError::invalid_at(self.name(), message));
        }
        if self.0.kind != kind {
            let message = format!("is a {:?} variable, not a {kind:?} one", self.0.kind).to_lowercase();
            return Err(HostError::invalid_at(self.name(), message));
        }
        Ok(())
    }
}

/// Returns the initial values of a variable. Returns `None` for zeros, which a new buffer holds already, and for
/// constant or random values on a device that stores no data.
///
/// # Errors
/// Those of [`initial_elements`]; `InsufficientMemory`.
pub(super) fn initial_values(
    backend: &dyn Backend,
    seed: u64,
    name: &str,
    descriptor: &Descriptor,
    initializer: VariableInitializer,
    cancel: &CancelToken,
) -> Result<Option<Vec<u8>>, HostError> {
    match initializer {
        VariableInitializer::Zeros => Ok(None),
        // The plugin has allocated these bytes already, so they need no memory check.
        VariableInitializer::Bytes(_) => initial_elements(seed, name, descriptor, initializer, cancel).map(Some),
        VariableInitializer::Constant(_) | VariableInitializer::Uniform { .. } | VariableInitializer::Normal { .. }
            if !backend.stores_data() =>
        {
            // Generating no elements still checks the arguments.
            let none = Shape::new([0]).map_err(|error| HostError::invalid_at(name, error.to_string()))?;
            initial_elements(seed, name, &Descriptor::new(descriptor.dtype, none), initializer, cancel).map(|_| None)
        }
        VariableInitializer::Constant(_) | VariableInitializer::Uniform { .. } | VariableInitializer::Normal { .. } => {
            let what = format_args!("the first elements of variable {name}");
            check_host_memory(&what, descriptor.bytes() as u64)?;
            initial_elements(seed, name, descriptor, initializer, cancel).map(Some)
        }
    }
}
