//! Tensors of a file: checked, and split into elements and type, or replaced by a reference to a variable.

use std::borrow::Cow;

use crate::elem::{ElementType, f64_to_f16_bits};
use crate::error::{Error, Result};
use crate::proto::{StringStringEntryProto, TensorProto};
use crate::value::{ConstantTensor, checked_size, element_count};

/// The key in `external_data` that marks a tensor whose elements are in a variable.
const VARIABLE_KEY: &str = "variable";
/// `TensorProto.data_location` of tensors with external elements.
pub(crate) const EXTERNAL_LOCATION: i32 = 1;

/// A checked tensor: it has as many bytes as its shape and type require.
#[derive(Debug)]
pub struct StoredTensor<'a> {
    /// The element type.
    pub elem: ElementType,
    /// The dimensions.
    pub shape: Vec<usize>,
    /// The location of the elements.
    pub place: ElementLocation<'a>,
}

/// The location of a tensor's elements.
#[derive(Debug)]
pub enum ElementLocation<'a> {
    /// In the tensor itself, little-endian.
    Bytes(Cow<'a, [u8]>),
    /// In the variable of this name.
    Variable(&'a str),
}

impl StoredTensor<'_> {
    /// Returns the tensor as a constant, or `None` if its elements are in a variable.
    pub fn constant(&self) -> Option<ConstantTensor> {
        match &self.place {
            ElementLocation::Bytes(bytes) => Some(ConstantTensor::from_bytes(self.elem, self.shape.clone(), bytes)),
            ElementLocation::Variable(_) => None,
        }
    }
}

/// Checks a tensor. `imported` states whether it comes from a configuration of this plugin, which alone can refer to
/// variables.
///
/// # Errors
/// Returns `Invalid` if dimensions are negative or too many, the number of elements is wrong, or the elements are still
/// in another file; `Unsupported` for types that are not supported.
pub fn read_tensor(tensor: &TensorProto, imported: bool) -> Result<StoredTensor<'_>> {
    let elem = ElementType::from_number(tensor.data_type)?;
    let shape = tensor.dims.iter().map(|&dim| checked_size(dim, "a dimension")).collect::<Result<Vec<_>>>()?;
    let count = element_count(&shape)?;
    if tensor.data_location == EXTERNAL_LOCATION || !tensor.external_data.is_empty() {
        return match &tensor.external_data[..] {
            [entry] if imported && entry.key == VARIABLE_KEY => {
                Ok(StoredTensor { elem, shape, place: ElementLocation::Variable(&entry.value) })
            }
            _ => Err(Error::invalid("its elements are in another file")),
        };
    }
    let bytes = if tensor.raw_data.is_empty() {
        Cow::Owned(typed_elements(tensor, elem)?)
    } else {
        Cow::Borrowed(tensor.raw_data.as_slice())
    };
    let expected = count.saturating_mul(elem.element_bytes());
    if bytes.len() != expected {
        let given = bytes.len();
        return Err(Error::invalid(format!("shape {shape:?} takes {expected} bytes of elements, not {given}")));
    }
    Ok(StoredTensor { elem, shape, place: ElementLocation::Bytes(bytes) })
}

/// Returns the elements from the field of the tensor's type.
fn typed_elements(tensor: &TensorProto, elem: ElementType) -> Result<Vec<u8>> {
    let small = |bytes: usize| {
        tensor.int32_data.iter().flat_map(|v| v.to_le_bytes().into_iter().take(bytes).collect::<Vec<_>>()).collect()
    };
    Ok(match elem {
        ElementType::Float32 => tensor.float_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        ElementType::Float64 => tensor.double_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        ElementType::Int64 => tensor.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        ElementType::Uint64 => tensor.uint64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        ElementType::Uint32 => tensor.uint64_data.iter().flat_map(|&v| (v as u32).to_le_bytes()).collect(),
        ElementType::Int32 | ElementType::Float16 | ElementType::Int8 | ElementType::Uint8 | ElementType::Bool => {
            small(elem.element_bytes())
        }
    })
}

/// Returns the tensor without its elements, which are in the variable `name`.
pub fn variable_reference(tensor: &TensorProto, name: &str) -> TensorProto {
    let external_data = vec![StringStringEntryProto { key: VARIABLE_KEY.to_owned(), value: name.to_owned() }];
    TensorProto {
        dims: tensor.dims.clone(),
        data_type: tensor.data_type,
        name: tensor.name.clone(),
        external_data,
        data_location: EXTERNAL_LOCATION,
        ..TensorProto::default()
    }
}

/// Returns a constant as a tensor of the file format.
pub fn from_constant(name: &str, constant: &ConstantTensor) -> TensorProto {
    TensorProto {
        dims: constant.shape.iter().map(|&dim| dim as i64).collect(),
        data_type: constant.elem.number(),
        name: name.to_owned(),
        raw_data: constant.to_bytes(),
        ..TensorProto::default()
    }
}

/// Encodes numbers as little-endian elements of a type, for tests and options.
pub fn encode_numbers(elem: ElementType, numbers: &[f64]) -> Vec<u8> {
    match elem {
        ElementType::Float32 => numbers.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        ElementType::Float16 => numbers.iter().flat_map(|&v| f64_to_f16_bits(v).to_le_bytes()).collect(),
        ElementType::Float64 => numbers.iter().flat_map(|&v| v.to_le_bytes()).collect(),
        _ => numbers
            .iter()
            .flat_map(|&v| (v as i64).to_le_bytes().into_iter().take(elem.element_bytes()).collect::<Vec<_>>())
            .collect(),
    }
}
