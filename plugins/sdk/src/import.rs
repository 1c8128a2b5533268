//! Importers: plugins that convert files in a foreign format to served models.

use crate::bindings::tensors::Descriptor;
use crate::bindings::variables as raw;
use crate::bindings::variables::{Initializer, VariableKind};
use crate::call_site::AtCallSite;
use crate::error::Result;
use crate::params::Params;
use crate::predict::Predictor;

/// A plugin that imports files in a foreign format and serves the imported models as a [`Predictor`].
///
/// ```no_run
/// # use saggar_plugin::*;
/// struct Offset(Executable);
///
/// impl Importer for Offset {
///     // The file is four little-endian float32 numbers.
///     fn import(file: &[u8], _: &Params, weights: &Weights<'_>) -> Result<Params> {
///         weights.put("offset", &descriptor(DataType::Float32, [4]), file.to_vec())?;
///         Ok(Params::new())
///     }
/// }
///
/// impl Predictor for Offset {
///     fn load(v: Variables, _: Params) -> Result<Self> {
///         let offset = v.parameter("offset", &[4], &Initializer::Zeros)?;
///         let graph = Graph::new();
///         let y = graph.input("x", offset.descriptor())?.add(&graph.variable(&offset)?)?;
///         Ok(Self(graph.build([("y", &y)])?))
///     }
///     fn signature(&self) -> Signature {
///         let port = |name| Port::new(name, DataType::Float32, [4]);
///         Signature { inputs: vec![port("x")], outputs: vec![port("y")], batch_sizes: Vec::new(), routes: Vec::new() }
///     }
///     fn predict(&self, inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>> {
///         self.0.dispatch(inputs.iter().map(|input| (input.name.as_str(), &input.tensor)))
///     }
/// }
///
/// saggar_plugin::export!(importer: Offset);
/// ```
pub trait Importer: Predictor {
    /// Creates the model's weights in `weights` and returns the configuration for [`Predictor::load`]. Called once per
    /// file, in a separate instance. The file itself is not stored. Options that the import did not read are refused
    /// after it returns.
    ///
    /// # Errors
    /// After any error, nothing is published.
    fn import(file: &[u8], options: &Params, weights: &Weights<'_>) -> Result<Params>;
}

/// The weights of an imported model: the namespace of variables of the new model version.
#[derive(Debug)]
pub struct Weights<'a>(pub(crate) &'a raw::Variables);

impl Weights<'_> {
    /// Creates the parameter `name` from little-endian elements in row-major order.
    ///
    /// # Errors
    /// Returns `Host` if a parameter with this name and another shape exists, if the number of bytes does not match the
    /// descriptor, or if a limit is exceeded.
    #[track_caller]
    pub fn put(&self, name: &str, descriptor: &Descriptor, elements: Vec<u8>) -> Result<()> {
        self.0.get(name, descriptor, &Initializer::Bytes(elements), VariableKind::Parameter).at_caller()?;
        Ok(())
    }
}
