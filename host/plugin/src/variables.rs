//! Variables: state that outlives a dispatch. The host owns it and keeps it on the device, so it can checkpoint,
//! restore and publish it without help from the plugin.
//!
//! An instance that predicts holds no weights: its variables are indices into the [`DeviceWeights`] that each call
//! brings, so that a version with other weights can reuse the instances of the version before it.

mod device_weights;

use std::collections::BTreeMap;
use std::sync::Arc;

use saggar_device::{Backend, CancelToken, DeviceBuffer, DeviceError, Meter, check_host_memory};
use saggar_store::checkpoint::{SavedVariable, VariableKind};
use saggar_tensor::limits::NAME_BYTES_MAX;
use saggar_tensor::{Descriptor, Shape};
use wasmtime::component::Resource;

use crate::bindings::tensors::Descriptor as WitDescriptor;
use crate::bindings::variables::{
    Host, HostVariable, HostVariables, Initializer, Variable as WitVariable, VariableKind as WitKind,
    Variables as WitVariables,
};
use crate::convert;
use crate::host_error::HostError;
use crate::initializers::initial_elements;
use crate::instance_state::InstanceState;
use crate::limits::VARIABLES_MAX;
use crate::loss_scale::RESERVED_PREFIX;
pub(crate) use device_weights::DeviceWeights;
use device_weights::{check_memory, overwrite, upload_variable};

/// One tensor of state. Clones refer to the same variable.
#[derive(Clone, Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct DeviceVariable(Arc<DeviceVariableInner>);

#[derive(Debug)]
struct DeviceVariableInner {
    name: String,
    kind: VariableKind,
    /// Set for a variable of a published version, which cannot be changed.
    sealed: bool,
    memory: VariableStorage,
}

/// The storage of a variable's elements.
#[derive(Debug)]
enum VariableStorage {
    /// In a separate buffer.
    Own(DeviceBuffer),
    /// At this index of the weights that the call brings.
    Weights { place: usize, descriptor: Descriptor },
}

/// Returns the initial values of a variable. Returns `None` for zeros, which a new buffer holds already, and for
/// constant or random values on a device that stores no data.
///
/// # Errors
/// Those of [`initial_elements`]; `InsufficientMemory`.
fn initial_values(
    backend: &dyn Backend,
    seed: u64,
    name: &str,
    descriptor: &Descriptor,
    initializer: Initializer,
    cancel: &CancelToken,
) -> Result<Option<Vec<u8>>, HostError> {
    match initializer {
        Initializer::Zeros => Ok(None),
        // The plugin has allocated these bytes already, so they need no memory check.
        Initializer::Bytes(_) => initial_elements(seed, name, descriptor, initializer, cancel).map(Some),
        Initializer::Constant(_) | Initializer::Uniform(_) | Initializer::Normal(_) if !backend.stores_data() => {
            // Generating no elements still checks the arguments.
            let none = Shape::new([0]).map_err(|error| HostError::invalid_at(name, error.to_string()))?;
            initial_elements(seed, name, &Descriptor::new(descriptor.dtype, none), initializer, cancel).map(|_| None)
        }
        Initializer::Constant(_) | Initializer::Uniform(_) | Initializer::Normal(_) => {
            let what = format_args!("the first elements of variable {name}");
            check_host_memory(&what, descriptor.bytes() as u64)?;
            initial_elements(seed, name, descriptor, initializer, cancel).map(Some)
        }
    }
}

impl DeviceVariable {
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

    fn check(&self, descriptor: &Descriptor, kind: VariableKind) -> Result<(), HostError> {
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

/// The variables of one model: the content of a checkpoint and of a model version.
#[derive(Clone, Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct VariableNamespace {
    seed: u64,
    /// Set for the variables of a model version: none can be created or changed.
    sealed: bool,
    variables: BTreeMap<String, DeviceVariable>,
}

impl VariableNamespace {
    pub(crate) fn new(seed: u64) -> VariableNamespace {
        VariableNamespace { seed, sealed: false, variables: BTreeMap::new() }
    }

    /// Uploads a model version's variables once. Clones share the device memory.
    ///
    /// # Errors
    /// `InsufficientMemory` before any of them is uploaded; the device's errors.
    pub(crate) fn upload_sealed(
        saved: &[SavedVariable],
        backend: &dyn Backend,
        meter: &Meter,
    ) -> Result<VariableNamespace, DeviceError> {
        check_memory(saved, backend, meter)?;
        let mut variables = BTreeMap::new();
        for it in saved {
            let memory = VariableStorage::Own(upload_variable(it, backend, meter)?);
            let slot = DeviceVariableInner { name: it.name.clone(), kind: it.kind, sealed: true, memory };
            variables.insert(it.name.clone(), DeviceVariable(Arc::new(slot)));
        }
        Ok(VariableNamespace { seed: 0, sealed: true, variables })
    }

    /// Returns a model version's variables, whose elements are in the weights that each call brings.
    pub(crate) fn with_call_weights(saved: &[SavedVariable]) -> VariableNamespace {
        let mut sorted: Vec<&SavedVariable> = saved.iter().collect();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        let variable = |(place, saved): (usize, &SavedVariable)| {
            let memory = VariableStorage::Weights { place, descriptor: saved.descriptor.clone() };
            let slot = DeviceVariableInner { name: saved.name.clone(), kind: saved.kind, sealed: true, memory };
            (saved.name.clone(), DeviceVariable(Arc::new(slot)))
        };
        VariableNamespace { seed: 0, sealed: true, variables: sorted.into_iter().enumerate().map(variable).collect() }
    }

    /// Returns whether `saved` has the same names, kinds, data types and shapes as these, so that it can replace them.
    pub(crate) fn has_same_layout(&self, saved: &[SavedVariable]) -> bool {
        let fits = |saved: &SavedVariable| {
            let same = |it: &DeviceVariable| *it.descriptor() == saved.descriptor && it.0.kind == saved.kind;
            self.variables.get(&saved.name).is_some_and(same)
        };
        saved.len() == self.variables.len() && saved.iter().all(fits)
    }

    /// Returns every variable whose kind is selected, with elements read from the device, sorted by name. On a device
    /// that stores no data the elements are empty: then only the name, kind and descriptor of a variable are saved.
    ///
    /// # Errors
    /// `InsufficientMemory` if the host has too little memory for all of them; the device's errors; `Cancelled`.
    pub(crate) fn save(
        &self,
        backend: &dyn Backend,
        cancel: &CancelToken,
        wanted: impl Fn(VariableKind) -> bool,
    ) -> Result<Vec<SavedVariable>, DeviceError> {
        let slots = self.variables.values().map(|variable| &*variable.0).filter(|slot| wanted(slot.kind));
        // Weights that come with each call are never saved from an instance.
        let own = slots.filter_map(|slot| match &slot.memory {
            VariableStorage::Own(buffer) => Some((slot, buffer)),
            VariableStorage::Weights { .. } => None,
        });
        let own: Vec<(&DeviceVariableInner, &DeviceBuffer)> = own.collect();
        if backend.stores_data() {
            let bytes = own.iter().map(|(_, buffer)| buffer.descriptor().bytes() as u64).sum();
            check_host_memory(&format_args!("a copy of {} variables, to be saved", own.len()), bytes)?;
        }
        let save = |(slot, buffer): (&DeviceVariableInner, &DeviceBuffer)| {
            Ok(SavedVariable {
                name: slot.name.clone(),
                kind: slot.kind,
                descriptor: buffer.descriptor().clone(),
                bytes: backend.read_if_stored(buffer, cancel)?.unwrap_or_default().into(),
            })
        };
        own.into_iter().map(save).collect()
    }

    /// Returns the number of variables.
    pub(crate) fn len(&self) -> usize {
        self.variables.len()
    }

    /// Overwrites the variables whose names are in `weights` and leaves the others unchanged. All or nothing. Returns
    /// how many were overwritten, at least one.
    ///
    /// # Errors
    /// Not found if no variable has such a name; invalid argument if one has another shape, data type or kind; the
    /// device's errors.
    pub(crate) fn load_matching(&self, weights: &[SavedVariable], backend: &dyn Backend) -> Result<usize, HostError> {
        let named = |weight: &SavedVariable| self.variables.get(&weight.name);
        let matched: Vec<_> = weights.iter().filter_map(|weight| Some((named(weight)?, weight))).collect();
        for (variable, weight) in &matched {
            variable.check(&weight.descriptor, weight.kind)?;
        }
        if matched.is_empty() {
            let name = weights.first().map_or("", |weight| &weight.name);
            return Err(HostError::not_found(name, "the model to start from has no variable of this training's"));
        }
        for (variable, weight) in &matched {
            overwrite(backend, variable.buffer(None)?, &weight.bytes)?;
        }
        Ok(matched.len())
    }

    /// Overwrites every variable with its saved elements. All or nothing: the saved and the existing variables must
    /// have the same names, descriptors and kinds.
    ///
    /// # Errors
    /// Not found and invalid argument, at the variable's name; the device's errors.
    pub(crate) fn restore(&self, saved: &[SavedVariable], backend: &dyn Backend) -> Result<(), HostError> {
        let missing =
            |name: &str| HostError::not_found(name, "the checkpoint and the model differ: only one has this variable");
        for variable in self.variables.keys() {
            if !saved.iter().any(|saved| saved.name == *variable) {
                return Err(missing(variable));
            }
        }
        for saved in saved {
            let variable = self.variables.get(&saved.name).ok_or_else(|| missing(&saved.name))?;
            variable.check(&saved.descriptor, saved.kind)?;
        }
        for saved in saved {
            overwrite(backend, self.variables[&saved.name].buffer(None)?, &saved.bytes)?;
        }
        Ok(())
    }
}

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
        initializer: Initializer,
        kind: VariableKind,
    ) -> Result<DeviceVariable, HostError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let bytes = name.len();
            return Err(HostError::invalid(format!("a variable's name has 1 to {NAME_BYTES_MAX} bytes, not {bytes}")));
        }
        self.check_deadline()?;
        // A variable that does not fit is refused before its initial values are generated.
        let buffer = self.backend.allocate(descriptor, &self.meter)?;
        if let Some(bytes) = initial_values(&*self.backend, seed, name, descriptor, initializer, self.cancel_token())? {
            self.backend.write_cancellable(&buffer, &bytes, self.cancel_token())?;
        }
        Ok(DeviceVariable(Arc::new(DeviceVariableInner {
            name: name.to_owned(),
            kind,
            sealed: false,
            memory: VariableStorage::Own(buffer),
        })))
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
        let elements = self.backend.read_cancellable(variable.buffer(self.weights.as_deref())?, self.cancel_token())?;
        if variable.is_weight() {
            self.weights_read = true;
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
        let VariableNamespace { seed, sealed, variables } = self.table.get(&namespace)?;
        if let Some(variable) = variables.get(&name) {
            variable.check(&descriptor, kind)?;
            let variable = variable.clone();
            return self.push(variable);
        }
        if *sealed {
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
        let variable = self.create_variable(*seed, &name, &descriptor, initializer, kind)?;
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

#[cfg(test)]
mod tests {
    use saggar_compile::CompileTarget;
    use saggar_device::NullBackend;
    use saggar_tensor::DType;

    use super::*;

    fn saved_variable(name: &str, dtype: DType, elements: usize, bytes: Vec<u8>) -> SavedVariable {
        let descriptor = Descriptor::new(dtype, Shape::new([elements]).unwrap());
        SavedVariable { name: name.to_owned(), kind: VariableKind::Parameter, descriptor, bytes: bytes.into() }
    }

    #[test]
    fn weights_are_checked_against_the_memory_they_take_on_the_device() {
        // Adapters without half-precision storage keep such numbers in words.
        let weights = [saved_variable("w", DType::F16, 100, vec![0; 200])];
        let words = CompileTarget { half_storage: false, ..CompileTarget::gpu() };
        for (target, taken) in [(CompileTarget::cpu(), 200), (CompileTarget::gpu(), 200), (words, 400)] {
            let device = NullBackend::new(target);
            for (limit, fits) in [(taken, true), (taken - 1, false)] {
                let refusal = |refused: DeviceError| {
                    let is_whole = matches!(refused, DeviceError::OutOfMemory { asked_bytes, used_bytes: 0, .. } if asked_bytes == taken);
                    assert!(is_whole, "{refused}");
                };
                let uploaded = DeviceWeights::upload(&weights, &device, &Meter::new(limit)).map(drop).map_err(refusal);
                let sealed =
                    VariableNamespace::upload_sealed(&weights, &device, &Meter::new(limit)).map(drop).map_err(refusal);
                assert_eq!((uploaded.is_ok(), sealed.is_ok()), (fits, fits), "{taken} bytes of {limit}");
            }
        }
    }

    #[test]
    fn a_model_larger_than_memory_can_be_published_and_opened_in_a_dry_run() {
        let (device, meter) = (NullBackend::new(CompileTarget::gpu()), Meter::unlimited());
        let (huge, small) = (
            saved_variable("a", DType::F32, (1 << 31) - 1, Vec::new()),
            saved_variable("b", DType::F32, 1, vec![1; 4]),
        );
        let first = |initializer| {
            initial_values(&device, 0, "a", &huge.descriptor, initializer, &CancelToken::never())
                .map_err(|fault| format!("{fault:?}"))
        };
        assert_eq!(first(Initializer::Normal((0.0, 1.0))), Ok(None));
        assert!(first(Initializer::Normal((0.0, -1.0))).is_err(), "the arguments are checked anyway");
        assert_eq!(first(Initializer::Zeros), Ok(None));

        let opened = VariableNamespace::upload_sealed(&[huge.clone(), small.clone()], &device, &meter).unwrap();
        let published = opened.save(&device, &CancelToken::never(), |_| true).unwrap();
        assert_eq!(published, [huge, small], "what was written is kept");
        DeviceWeights::upload(&published, &device, &meter).unwrap();
    }
}
