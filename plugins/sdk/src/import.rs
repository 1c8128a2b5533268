//! Importers: plugins that make served models of files in a foreign format.

use crate::bindings::tensors::Descriptor;
use crate::bindings::variables as raw;
use crate::bindings::variables::{Initializer, VariableKind};
use crate::error::Result;
use crate::params::Params;
use crate::predict::Predictor;

/// Reads files of a foreign format; what it makes of them, it serves as a [`Predictor`].
pub trait Importer: Predictor {
    /// Puts the model's weights into `weights` and gives the configuration that [`Predictor::load`] will be given. The
    /// file is not kept. Called once a file, in an instance of its own; options that nobody asked for are refused after
    /// it.
    ///
    /// # Errors
    /// Any; then nothing is published.
    fn import(file: &[u8], options: &Params, weights: &Weights<'_>) -> Result<Params>;
}

/// Where an importer puts weights: the namespace of the model version that becomes of the file.
#[derive(Debug)]
pub struct Weights<'a>(pub(crate) &'a raw::Variables);

impl Weights<'_> {
    /// Makes the parameter `name` of these little-endian elements in row-major order.
    ///
    /// # Errors
    /// `Host` if there is one of another shape, or the elements are not as many as the descriptor takes, or a limit is
    /// passed.
    pub fn put(&self, name: &str, descriptor: &Descriptor, elements: Vec<u8>) -> Result<()> {
        self.0.get(name, descriptor, &Initializer::Bytes(elements), VariableKind::Parameter)?;
        Ok(())
    }
}
