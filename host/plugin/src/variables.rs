//! Variables: state that outlives a dispatch. The host owns it and keeps it on the device, so it can checkpoint,
//! restore and publish it without help from the plugin.
//!
//! An instance that predicts holds no weights: its variables are indices into the [`DeviceWeights`] that each call
//! brings, so that a version with other weights can reuse the instances of the version before it.

pub(crate) mod device_variable;
pub(crate) mod device_weights;
pub(crate) mod namespace;
pub(crate) mod weights_mismatch;

use saggar_store::checkpoint::VariableKind;
use saggar_tensor::Descriptor;
use saggar_tensor::limits::NAME_BYTES_MAX;
use wasmtime::component::Resource;

use crate::bindings::tensors::Descriptor as WitDescriptor;
use crate::bindings::variables::{
    Host, HostVariable, HostVariables, Initializer, Variable as WitVariable, VariableKind as WitKind,
    Variables as WitVariables,
};
use crate::convert;
use crate::host_error::HostError;
use crate::initializers::VariableInitializer;
use crate::instance_state::InstanceState;
use crate::limits::VARIABLES_MAX;
use crate::loss_scale::loss_scale_state::RESERVED_PREFIX;
use device_variable::DeviceVariable;
use namespace::VariableNamespace;

impl InstanceState {
    /// Creates a variable.
    ///
    /// # Errors
    /// Invalid argument for its name or initial values; the device's errors.
    pub(crate) fn create_variable(
        &self,
        seed: u64,
        name: &str,
        descriptor: &Descriptor,
        initializer: VariableInitializer,
        kind: VariableKind,
    ) -> Result<DeviceVariable, HostError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let bytes = name.len();
            return Err(HostError::invalid(format!("a variable's name has 1 to {NAME_BYTES_MAX} bytes, not {bytes}")));
        }
        self.check_deadline()?;
        DeviceVariable::create(
            &*self.backend,
            &self.meter,
            seed,
            (name, kind),
            descriptor,
            initializer,
            self.cancel_token(),
        )
    }
}

impl Host for InstanceState {}

impl HostVariable for InstanceState {
    fn name(&mut self, variable: Resource<WitVariable>) -> wasmtime::Result<String> {
        Ok(self.table.get(&variable)?.name().to_owned())
    }

    fn descriptor(&mut self, variable: Resource<WitVariable>) -> wasmtime::Result<WitDescriptor> {
        Ok(convert::wit_descriptor(self.table.get(&variable)?.descriptor()))
    }

    fn read(&mut self, variable: Resource<WitVariable>) -> Result<Vec<u8>, HostError> {
        self.record_host_call();
        let variable = self.table.get(&variable)?;
        let elements = self.backend.read_cancellable(variable.buffer(self.weights.current())?, self.cancel_token())?;
        if variable.is_weight() {
            self.weights.record_read();
        }
        self.record_host_call();
        Ok(elements)
    }

    fn write(&mut self, variable: Resource<WitVariable>, data: Vec<u8>) -> Result<(), HostError> {
        let variable = self.table.get(&variable)?;
        if variable.is_sealed() {
            return Err(sealed_error(variable.name()));
        }
        let descriptor = variable.descriptor();
        if data.len() != descriptor.bytes() {
            let message = format!("{descriptor} takes {} bytes, not {}", descriptor.bytes(), data.len());
            return Err(HostError::invalid_at(variable.name(), message));
        }
        Ok(self.backend.write_cancellable(variable.buffer(None)?, &data, self.cancel_token())?)
    }

    fn drop(&mut self, variable: Resource<WitVariable>) -> wasmtime::Result<()> {
        self.table.delete(variable)?;
        Ok(())
    }
}

/// Returns the refusal to change a variable of a published version.
pub(crate) fn sealed_error(name: &str) -> HostError {
    HostError::invalid_at(name, "belongs to a published model version, which never changes")
}

impl HostVariables for InstanceState {
    fn new(&mut self, seed: u64) -> wasmtime::Result<Resource<WitVariables>> {
        // A constructor cannot return an error: past the limit of handles it traps.
        match self.push(VariableNamespace::new(seed)) {
            Ok(namespace) => Ok(namespace),
            Err(fault) => {
                let error = self.wit_error(fault)?;
                Err(wasmtime::Error::msg(error.message))
            }
        }
    }

    fn get(
        &mut self,
        namespace: Resource<WitVariables>,
        name: String,
        descriptor: WitDescriptor,
        initializer: Initializer,
        kind: WitKind,
    ) -> Result<Resource<WitVariable>, HostError> {
        let (descriptor, kind) = (convert::descriptor(&descriptor)?, convert::variable_kind(kind));
        let VariableNamespace { seed, sealed, adopts_kinds, variables } = self.table.get(&namespace)?;
        if let Some(variable) = variables.get(&name) {
            let (variable, adopts) = (variable.clone(), *adopts_kinds);
            if *sealed && *variable.descriptor() != descriptor {
                self.weights.record_mismatch(&name, &descriptor, || variable.descriptor().to_string());
            }
            variable.check(&descriptor, if adopts { variable.kind() } else { kind })?;
            if adopts {
                self.weights.record_kind(name, kind);
            }
            return self.push(variable);
        }
        if *sealed {
            self.weights.record_mismatch(&name, &descriptor, || weights_mismatch::describe_missing(variables.keys()));
            return Err(HostError::not_found(name, "the model version has no such variable"));
        }
        if name.starts_with(RESERVED_PREFIX) {
            return Err(HostError::invalid_at(
                name,
                format!("names that begin with `{RESERVED_PREFIX}` are the host's own"),
            ));
        }
        if variables.len() >= VARIABLES_MAX {
            return Err(HostError::out_of_memory(format!("a namespace has at most {VARIABLES_MAX} variables")));
        }
        let variable = self.create_variable(*seed, &name, &descriptor, convert::initializer(initializer), kind)?;
        self.table.get_mut(&namespace)?.variables.insert(name, variable.clone());
        self.push(variable)
    }

    fn names(&mut self, namespace: Resource<WitVariables>) -> wasmtime::Result<Vec<String>> {
        Ok(self.table.get(&namespace)?.variables.keys().cloned().collect())
    }

    fn drop(&mut self, namespace: Resource<WitVariables>) -> wasmtime::Result<()> {
        self.table.delete(namespace)?;
        Ok(())
    }
}
