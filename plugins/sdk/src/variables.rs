//! Variables: named state that outlives a dispatch.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::bindings::tensors::{DataType, Descriptor};
use crate::bindings::variables as raw;
use crate::bindings::variables::{Initializer, VariableKind};
use crate::call_site::AtCallSite;
use crate::error::Result;
use crate::tensor::descriptor;

/// One tensor of state. Clones refer to the same variable.
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
    /// Returns the full name, such as `conv1/weight`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the full name of the scope that the variable is in, such as `conv1`: that of the layer. Empty outside of
    /// scopes.
    pub(crate) fn scope(&self) -> &str {
        self.0.name.rsplit_once('/').map_or("", |(scope, _)| scope)
    }

    /// Returns the data type and shape.
    pub fn descriptor(&self) -> &Descriptor {
        &self.0.descriptor
    }

    /// Returns the elements, little-endian and row-major. Waits for the dispatches that write them.
    ///
    /// # Errors
    /// Returns `Host` if one of those dispatches failed.
    #[track_caller]
    pub fn read(&self) -> Result<Vec<u8>> {
        self.0.raw.read().at_caller()
    }

    /// Replaces the elements.
    ///
    /// # Errors
    /// Returns `Host` if the number of bytes does not match.
    #[track_caller]
    pub fn write(&self, data: &[u8]) -> Result<()> {
        self.0.raw.write(data).at_caller()
    }

    pub(crate) fn is_parameter(&self) -> bool {
        matches!(self.0.kind, VariableKind::Parameter)
    }

    pub(crate) fn raw(&self) -> &raw::Variable {
        &self.0.raw
    }
}

/// A namespace of variables, or the part of one with a prefix. Clones refer to the same namespace.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(job: &Job) -> Result<()> {
/// let v = job.variables();
/// let scale = v.scope("block1").parameter("scale", &[64], &Initializer::Constant(1.0))?;
/// assert_eq!(scale.name(), "block1/scale");
/// # Ok(())
/// # }
/// ```
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
    /// Returns an empty namespace. Random initial values depend only on `seed` and the variable's name.
    pub fn new(seed: u64) -> Self {
        Self::with_seed(raw::Variables::new(seed), seed)
    }

    /// Wraps a namespace of the host, which has no random initial values.
    pub(crate) fn from_raw(raw: raw::Variables) -> Self {
        Self::with_seed(raw, 0)
    }

    fn with_seed(raw: raw::Variables, seed: u64) -> Self {
        Self { namespace: Rc::new(NamespaceState { raw, seed, variables: RefCell::default() }), prefix: String::new() }
    }

    /// Returns the whole namespace, without the prefix.
    #[must_use]
    pub(crate) fn root(&self) -> Self {
        Self { namespace: Rc::clone(&self.namespace), prefix: String::new() }
    }

    /// Returns the part of the namespace under `name`: its variables are called `name/...`.
    #[must_use]
    pub fn scope(&self, name: &str) -> Self {
        Self { namespace: Rc::clone(&self.namespace), prefix: format!("{}{name}/", self.prefix) }
    }

    /// Returns the name of this part of the namespace: empty for the whole.
    pub(crate) fn scope_name(&self) -> String {
        self.prefix.trim_end_matches('/').to_owned()
    }

    /// Returns the variable `name`, and creates it with `initial` if it does not exist.
    ///
    /// # Errors
    /// Returns `Host` if it exists with another shape, data type or kind, or the namespace belongs to a model version
    /// without this variable.
    #[track_caller]
    pub fn get(
        &self,
        name: &str,
        descriptor: Descriptor,
        initial: &Initializer,
        kind: VariableKind,
    ) -> Result<Variable> {
        let name = format!("{}{name}", self.prefix);
        let raw = self.namespace.raw.get(&name, &descriptor, initial, kind).at_caller()?;
        // The host has checked that the descriptor and kind are the same in every call. Graphs cache operands by
        // variable, so every call must return the same variable.
        let mut variables = self.namespace.variables.borrow_mut();
        let variable = variables
            .entry(name.clone())
            .or_insert_with(|| Variable(Rc::new(VariableState { raw, name, descriptor, kind })));
        Ok(variable.clone())
    }

    /// Returns a `float32` parameter: trained, and part of a model version.
    ///
    /// # Errors
    /// As [`Variables::get`].
    #[track_caller]
    pub fn parameter(&self, name: &str, shape: &[u32], initial: &Initializer) -> Result<Variable> {
        self.get(name, descriptor(DataType::Float32, shape), initial, VariableKind::Parameter)
    }

    /// Returns a `float32` statistic: learnt without gradients, and part of a model version.
    ///
    /// # Errors
    /// As [`Variables::get`].
    #[track_caller]
    pub fn statistic(&self, name: &str, shape: &[u32], initial: &Initializer) -> Result<Variable> {
        self.get(name, descriptor(DataType::Float32, shape), initial, VariableKind::Statistic)
    }

    /// Returns a variable that is only needed for training, with zeros as initial values.
    ///
    /// # Errors
    /// As [`Variables::get`].
    #[track_caller]
    pub fn training(&self, name: &str, descriptor: Descriptor) -> Result<Variable> {
        self.get(name, descriptor, &Initializer::Zeros, VariableKind::Training)
    }

    /// Returns the key of the namespace's random numbers: `uint32[4]`, the seed and the number of the step.
    #[track_caller]
    pub(crate) fn random_key(&self) -> Result<Variable> {
        let seed = [self.namespace.seed as u32, (self.namespace.seed >> 32) as u32, 0, 0];
        let bytes = Initializer::Bytes(seed.into_iter().flat_map(u32::to_le_bytes).collect());
        self.root().get("random/key", descriptor(DataType::Uint32, [4]), &bytes, VariableKind::Training)
    }

    /// Returns the parameters of the whole namespace that were requested so far, sorted by name.
    pub fn parameters(&self) -> Vec<Variable> {
        let variables = self.namespace.variables.borrow();
        variables.values().filter(|variable| variable.is_parameter()).cloned().collect()
    }

    /// Returns the names of all variables, sorted.
    pub fn names(&self) -> Vec<String> {
        self.namespace.raw.names()
    }

    pub(crate) fn raw(&self) -> &raw::Variables {
        &self.namespace.raw
    }
}
