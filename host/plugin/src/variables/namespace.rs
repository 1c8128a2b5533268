//! The variables of one model.

use std::collections::BTreeMap;
use std::sync::Arc;

use saggar_device::{Backend, CancelToken, DeviceBuffer, DeviceError, Meter, check_host_memory};
use saggar_store::checkpoint::{SavedVariable, VariableKind};

use super::device_variable::{DeviceVariable, DeviceVariableInner, VariableStorage};
use super::device_weights::{check_memory, overwrite, upload_variable};
use crate::host_error::HostError;

/// The variables of one model: the content of a checkpoint and of a model version.
#[derive(Clone, Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct VariableNamespace {
    pub(super) seed: u64,
    /// Set for the variables of a model version: none can be created or changed.
    pub(super) sealed: bool,
    /// Whether the plugin decides which of the variables are parameters and which are statistics, because they come from
    /// a file that does not say.
    pub(super) adopts_kinds: bool,
    pub(super) variables: BTreeMap<String, DeviceVariable>,
}

impl VariableNamespace {
    pub(crate) fn new(seed: u64) -> VariableNamespace {
        VariableNamespace { seed, sealed: false, adopts_kinds: false, variables: BTreeMap::new() }
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
        Ok(VariableNamespace { seed: 0, sealed: true, adopts_kinds: false, variables })
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
        let variables = sorted.into_iter().enumerate().map(variable).collect();
        VariableNamespace { seed: 0, sealed: true, adopts_kinds: false, variables }
    }

    /// Returns these variables with the kinds that the plugin declares, which the instance records.
    pub(crate) fn adopting_kinds(self) -> VariableNamespace {
        VariableNamespace { adopts_kinds: true, ..self }
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

#[cfg(test)]
mod tests {
    use saggar_compile::CompileTarget;
    use saggar_device::NullBackend;
    use saggar_tensor::{DType, Descriptor, Shape};

    use super::*;
    use crate::initializers::VariableInitializer;
    use crate::variables::device_variable::initial_values;
    use crate::variables::device_weights::DeviceWeights;

    fn saved_variable(name: &str, dtype: DType, elements: usize, bytes: Vec<u8>) -> SavedVariable {
        let descriptor = Descriptor::new(dtype, Shape::new([elements]).unwrap());
        SavedVariable { name: name.to_owned(), kind: VariableKind::Parameter, descriptor, bytes: bytes.into() }
    }

    #[test]
    fn weights_are_checked_against_the_memory_they_take_on_the_device() {
        // Adapters without half-precision storage keep such numbers in words.
        let weights = [saved_variable("w", DType::F16, 100, vec![0; 200])];
        let words = CompileTarget { half_storage: false, ..CompileTarget::gpu() };
        for (target, device_bytes) in [(CompileTarget::cpu(), 200), (CompileTarget::gpu(), 200), (words, 400)] {
            let device = NullBackend::new(target);
            for (limit, fits) in [(device_bytes, true), (device_bytes - 1, false)] {
                let refusal = |refused: DeviceError| {
                    let is_whole = matches!(refused, DeviceError::OutOfMemory { asked_bytes, used_bytes: 0, .. } if asked_bytes == device_bytes);
                    assert!(is_whole, "{refused}");
                };
                let uploaded = DeviceWeights::upload(&weights, &device, &Meter::new(limit)).map(drop).map_err(refusal);
                let sealed =
                    VariableNamespace::upload_sealed(&weights, &device, &Meter::new(limit)).map(drop).map_err(refusal);
                assert_eq!((uploaded.is_ok(), sealed.is_ok()), (fits, fits), "{device_bytes} bytes of {limit}");
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
        assert_eq!(first(VariableInitializer::Normal { mean: 0.0, deviation: 1.0 }), Ok(None));
        assert!(
            first(VariableInitializer::Normal { mean: 0.0, deviation: -1.0 }).is_err(),
            "the arguments are checked anyway"
        );
        assert_eq!(first(VariableInitializer::Zeros), Ok(None));

        let opened = VariableNamespace::upload_sealed(&[huge.clone(), small.clone()], &device, &meter).unwrap();
        let published = opened.save(&device, &CancelToken::never(), |_| true).unwrap();
        assert_eq!(published, [huge, small], "what was written is kept");
        DeviceWeights::upload(&published, &device, &meter).unwrap();
    }
}
