//! The decoded inputs of a prediction.

use saggar_plugin::NamedTensor;

/// The inputs of a request, in the signature's order.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictionInputs {
    /// One tensor per port, of shape `[batch, item...]`.
    pub tensors: Vec<NamedTensor>,
    /// The number of items, or `None` if the client sent one item without a batch dimension.
    pub items: Option<usize>,
    /// Warnings to the client about how the inputs were decoded.
    pub warnings: Vec<String>,
}
