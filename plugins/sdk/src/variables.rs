//! State that outlives a dispatch, by name.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::bindings::tensors::{DataType, Descriptor};
use crate::bindings::variables as raw;
use crate::bindings::variables::{Initializer, VariableKind};
use crate::error::Result;
use crate::tensor::descriptor;

/// One tensor of state. Clones are the same variable.
#[derive(Debug, Clone)]
pub struct Variable(Rc<VariableState>);

#[derive(Debug)]
struct VariableState {
    raw: raw::Variable,
    name: String,
    descriptor: Descriptor,
    kind: VariableKind,
}

impl Variable {
    /// Its full name: `conv1/weight`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its data type and shape.
    pub fn descriptor(&self) -> &Descriptor {
        &self.0.descriptor
    }

    /// Its elements, little-endian and row-major. Waits for the dispatches that write it.
    ///
    /// # Errors
    /// `Host` if one of them failed.
    pub fn read(&self) -> Result<Vec<u8>> {
        Ok(self.0.raw.read()?)
    }

    /// Replaces its elements.
    ///
    /// # Errors
    /// `Host` if they are not as many as it holds.
    pub fn write(&self, data: &[u8]) -> Result<()> {
        Ok(self.0.raw.write(data)?)
    }

    pub(crate) fn is_parameter(&self) -> bool {
        matches!(self.0.kind, VariableKind::Parameter)
    }

    pub(crate) fn raw(&self) -> &raw::Variable {
        &self.0.raw
    }
}

/// A namespace of variables, or a part of one under a prefix. Clones are the same namespace.
#[derive(Debug, Clone)]
pub struct Variables {
    namespace: Rc<NamespaceState>,
    prefix: String,
}

#[derive(Debug)]
struct NamespaceState {
    raw: raw::Variables,
    seed: u64,
    variables: RefCell<BTreeMap<String, Variable>>,
}

impl Variables {
    /// An empty namespace. The first values of its variables follow from `seed` and their names alone.
    pub fn new(seed: u64) -> Self {
        Self::with_seed(raw::Variables::new(seed), seed)
    }

    /// A namespace of the host's making, where nothing random happens.
    pub(crate) fn from_raw(raw: raw::Variables) -> Self {
        Self::with_seed(raw, 0)
    }

    fn with_seed(raw: raw::Variables, seed: u64) -> Self {
        Self { namespace: Rc::new(NamespaceState { raw, seed, variables: RefCell::default() }), prefix: String::new() }
    }

    /// The whole namespace.
    #[must_use]
    pub(crate) fn root(&self) -> Self {
        Self { namespace: Rc::clone(&self.namespace), prefix: String::new() }
    }

    /// The part of the namespace under `name`: its variables are called `name/...`.
    #[must_use]
    pub fn scope(&self, name: &str) -> Self {
        Self { namespace: Rc::clone(&self.namespace), prefix: format!("{}{name}/", self.prefix) }
    }

    /// The variable `name`; made with `initial` if it is new.
    ///
    /// # Errors
    /// `Host` if it exists with another shape, data type or kind, or the namespace came from a model version without it.
    pub fn get(
        &self,
        name: &str,
        descriptor: Descriptor,
        initial: &Initializer,
        kind: VariableKind,
    ) -> Result<Variable> {
        let name = format!("{}{name}", self.prefix);
        let raw = self.namespace.raw.get(&name, &descriptor, initial, kind)?;
        // The host has checked that a second use agrees with the first; operands are cached by variable, so both uses
        // must be the same one.
        let mut made = self.namespace.variables.borrow_mut();
        let variable = made
            .entry(name.clone())
            .or_insert_with(|| Variable(Rc::new(VariableState { raw, name, descriptor, kind })));
        Ok(variable.clone())
    }

    /// A `float32` parameter: trained, and shipped with a model version.
    ///
    /// # Errors
    /// As [`Variables::get`].
    pub fn parameter(&self, name: &str, shape: &[u32], initial: &Initializer) -> Result<Variable> {
        self.get(name, descriptor(DataType::Float32, shape), initial, VariableKind::Parameter)
    }

    /// A `float32` statistic: learnt without gradients, and shipped with a model version.
    ///
    /// # Errors
    /// As [`Variables::get`].
    pub fn statistic(&self, name: &str, shape: &[u32], initial: &Initializer) -> Result<Variable> {
        self.get(name, descriptor(DataType::Float32, shape), initial, VariableKind::Statistic)
    }

    /// State that only training needs, of zeros at first.
    ///
    /// # Errors
    /// As [`Variables::get`].
    pub fn training(&self, name: &str, descriptor: Descriptor) -> Result<Variable> {
        self.get(name, descriptor, &Initializer::Zeros, VariableKind::Training)
    }

    /// The key that the namespace's random numbers follow from: `uint32[4]`, its seed and the number of the step.
    pub(crate) fn random_key(&self) -> Result<Variable> {
        let seed = [self.namespace.seed as u32, (self.namespace.seed >> 32) as u32, 0, 0];
        let bytes = Initializer::Bytes(seed.into_iter().flat_map(u32::to_le_bytes).collect());
        self.root().get("random/key", descriptor(DataType::Uint32, [4]), &bytes, VariableKind::Training)
    }

    /// The parameters of the whole namespace that were asked for so far, by name.
    pub fn parameters(&self) -> Vec<Variable> {
        let made = self.namespace.variables.borrow();
        made.values().filter(|variable| variable.is_parameter()).cloned().collect()
    }

    /// Names of all variables, sorted.
    pub fn names(&self) -> Vec<String> {
        self.namespace.raw.names()
    }

    pub(crate) fn raw(&self) -> &raw::Variables {
        &self.namespace.raw
    }
}
