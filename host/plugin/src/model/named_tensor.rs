//! The tensor that a prediction passes from the decoded request to the device, and back to the encoded response.

use saggar_tensor::Descriptor;

/// An input or output tensor of a model, in the host's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// The port's name.
    pub name: String,
    /// Data type and shape. The batch dimension is first, if the model has one.
    pub descriptor: Descriptor,
    /// Dense little-endian elements, row-major.
    pub bytes: Vec<u8>,
}
