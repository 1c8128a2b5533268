//! Named inputs and outputs of a model.

use std::sync::Arc;

use saggar_store::ImagePreprocessing;
use saggar_tensor::interp::float16;
use saggar_tensor::{DType, Descriptor, Shape};

use crate::error::PluginError;
use crate::initializers::encode_element;

/// A named input or output of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelPort {
    /// Its name, unique among the inputs or the outputs.
    pub name: String,
    /// Data type and shape of one item, without the batch.
    pub item: Descriptor,
    /// The meaning of the values, so that clients can use other forms than numbers: `image`, `class`, `probabilities`,
    /// `text`, `boolean`.
    pub semantics: Option<String>,
    /// Names of the classes, or empty.
    pub classes: Vec<String>,
    /// The value of every element if a request leaves the input out; the data type holds it. `None` if the input is
    /// required, and for outputs.
    pub default: Option<f64>,
    /// How the host makes the plugin's input of the images in this port. `None` if the plugin gets them as they are.
    pub preprocessing: Option<Arc<ImagePreprocessing>>,
}

impl ModelPort {
    /// Returns the maximum bytes of a text in this port, or `None` if it is not a text.
    pub fn text_bytes_max(&self) -> Option<usize> {
        match (self.semantics.as_deref(), self.item.dtype, self.item.shape.dims()) {
            (Some("text"), DType::U8, &[bytes]) if bytes > 0 => Some(bytes),
            _ => None,
        }
    }

    /// Returns whether its elements are truth values: bytes that are 1 or 0.
    pub fn is_boolean(&self) -> bool {
        self.semantics.as_deref() == Some("boolean") && self.item.dtype == DType::U8
    }

    /// Returns one item of the default, dense and little-endian, or `None` if the input is required.
    pub fn default_item(&self) -> Option<Vec<u8>> {
        let element = encode_in_range(self.item.dtype, self.default?)?;
        Some(element.repeat(self.item.shape.elements()))
    }

    /// Returns the data type and shape of a batch: `[items, item...]`.
    ///
    /// # Errors
    /// `BadInput` if the batch would be too large for a tensor.
    pub fn batch_descriptor(&self, items: usize) -> Result<Descriptor, PluginError> {
        let dims = [&[items], self.item.shape.dims()].concat();
        match Shape::new(dims) {
            Ok(shape) => Ok(Descriptor::new(self.item.dtype, shape)),
            Err(error) => Err(PluginError::BadInput {
                name: self.name.clone(),
                expected: "a tensor within limits".to_owned(),
                given: format!("{items} items of {}: {error}", self.item),
            }),
        }
    }
}

/// Returns one element, little-endian, or `None` if the data type does not hold the value or the float would not be
/// finite.
pub(super) fn encode_in_range(dtype: DType, value: f64) -> Option<Vec<u8>> {
    let is_number = match dtype {
        DType::F32 => (value as f32).is_finite(),
        DType::F16 => float16::from_bits(float16::to_bits(value)).is_finite(),
        DType::I64 | DType::U64 | DType::I32 | DType::U32 | DType::I8 | DType::U8 => value.is_finite(),
    };
    is_number.then(|| encode_element(dtype, value)).flatten()
}
