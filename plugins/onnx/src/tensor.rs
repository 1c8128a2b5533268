//! Tensors as files hold them: checked, and taken apart or replaced by a reference to a variable.

use std::borrow::Cow;

use crate::elem::{ElementType, f64_to_f16_bits};
use crate::error::{Error, Result};
use crate::proto::{StringStringEntryProto, TensorProto};
use crate::value::{ConstantTensor, checked_size, element_count};

/// How a tensor that was made a variable says so, in the field where files name other files.
const VARIABLE_KEY: &str = "variable";
/// `TensorProto.data_location` of tensors whose elements are elsewhere.
pub(crate) const EXTERNAL_LOCATION: i32 = 1;

/// A tensor that has been checked: as many bytes as its shape and type say.
#[derive(Debug)]
pub struct StoredTensor<'a> {
    /// The elements' type.
    pub elem: ElementType,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// The elements.
    pub place: ElementLocation<'a>,
}

/// Where a tensor's elements are.
#[derive(Debug)]
pub enum ElementLocation<'a> {
    /// Here, little-endian.
    Bytes(Cow<'a, [u8]>),
    /// In the variable of that name.
    Variable(&'a str),
}

impl StoredTensor<'_> {
    /// The tensor as a constant, if its elements are here.
    pub fn constant(&self) -> Option<ConstantTensor> {
        match &self.place {
            ElementLocation::Bytes(bytes) => Some(ConstantTensor::from_bytes(self.elem, self.shape.clone(), bytes)),
            ElementLocation::Variable(_) => None,
        }
    }
}

/// The tensor, checked. `imported` says whether it comes from a configuration of this plugin, which alone may refer to
/// variables.
///
/// # Errors
/// `Invalid` if dimensions are negative or too many, elements are not as many as they say, or are in another file still;
/// `Unsupported` for types that are not taken.
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

/// The elements of the field of the tensor's type.
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

/// The tensor without its elements, which the variable `name` has.
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

/// A tensor of these numbers.
pub fn from_constant(name: &str, constant: &ConstantTensor) -> TensorProto {
    TensorProto {
        dims: constant.shape.iter().map(|&dim| dim as i64).collect(),
        data_type: constant.elem.number(),
        name: name.to_owned(),
        raw_data: constant.to_bytes(),
        ..TensorProto::default()
    }
}

/// Numbers as elements of a type, for tests and options: little-endian bytes.
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
