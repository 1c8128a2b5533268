//! Tensors as files hold them: checked, and taken apart or replaced by a reference to a variable.

use std::borrow::Cow;

use crate::elem::{Elem, half_from_f64};
use crate::error::{Error, Result};
use crate::proto::{StringStringEntryProto, TensorProto};
use crate::value::{Constant, elements, size};

/// How a tensor that was made a variable says so, in the field where files name other files.
const VARIABLE: &str = "variable";
/// `TensorProto.data_location` of tensors whose elements are elsewhere.
pub(crate) const ELSEWHERE: i32 = 1;

/// A tensor that has been checked: as many bytes as its shape and type say.
#[derive(Debug)]
pub struct Stored<'a> {
    /// The elements' type.
    pub elem: Elem,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// The elements.
    pub place: Place<'a>,
}

/// Where a tensor's elements are.
#[derive(Debug)]
pub enum Place<'a> {
    /// Here, little-endian.
    Bytes(Cow<'a, [u8]>),
    /// In the variable of that name.
    Variable(&'a str),
}

impl Stored<'_> {
    /// The tensor as a constant, if its elements are here.
    pub fn constant(&self) -> Option<Constant> {
        match &self.place {
            Place::Bytes(bytes) => Some(Constant::from_bytes(self.elem, self.shape.clone(), bytes)),
            Place::Variable(_) => None,
        }
    }
}

/// The tensor, checked. `imported` says whether it comes from a configuration of this plugin, which alone may refer to
/// variables.
///
/// # Errors
/// `Invalid` if dimensions are negative or too many, elements are not as many as they say, or are in another file still;
/// `Unsupported` for types that are not taken.
pub fn read(tensor: &TensorProto, imported: bool) -> Result<Stored<'_>> {
    let elem = Elem::from_number(tensor.data_type)?;
    let shape = tensor.dims.iter().map(|&dim| size(dim, "a dimension")).collect::<Result<Vec<_>>>()?;
    let count = elements(&shape)?;
    if tensor.data_location == ELSEWHERE || !tensor.external_data.is_empty() {
        return match &tensor.external_data[..] {
            [entry] if imported && entry.key == VARIABLE => {
                Ok(Stored { elem, shape, place: Place::Variable(&entry.value) })
            }
            _ => Err(Error::invalid("its elements are in another file")),
        };
    }
    let bytes = if tensor.raw_data.is_empty() {
        Cow::Owned(typed(tensor, elem)?)
    } else {
        Cow::Borrowed(tensor.raw_data.as_slice())
    };
    let expected = count.saturating_mul(elem.bytes());
    if bytes.len() != expected {
        let given = bytes.len();
        return Err(Error::invalid(format!("shape {shape:?} takes {expected} bytes of elements, not {given}")));
    }
    Ok(Stored { elem, shape, place: Place::Bytes(bytes) })
}

/// The elements of the field of the tensor's type.
fn typed(tensor: &TensorProto, elem: Elem) -> Result<Vec<u8>> {
    let small = |bytes: usize| {
        tensor.int32_data.iter().flat_map(|v| v.to_le_bytes().into_iter().take(bytes).collect::<Vec<_>>()).collect()
    };
    Ok(match elem {
        Elem::Float32 => tensor.float_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Elem::Float64 => tensor.double_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Elem::Int64 => tensor.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Elem::Uint64 => tensor.uint64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Elem::Uint32 => tensor.uint64_data.iter().flat_map(|&v| (v as u32).to_le_bytes()).collect(),
        Elem::Int32 | Elem::Float16 | Elem::Int8 | Elem::Uint8 | Elem::Bool => small(elem.bytes()),
    })
}

/// The tensor without its elements, which the variable `name` has.
pub fn moved(tensor: &TensorProto, name: &str) -> TensorProto {
    let external_data = vec![StringStringEntryProto { key: VARIABLE.to_owned(), value: name.to_owned() }];
    TensorProto {
        dims: tensor.dims.clone(),
        data_type: tensor.data_type,
        name: tensor.name.clone(),
        external_data,
        data_location: ELSEWHERE,
        ..TensorProto::default()
    }
}

/// A tensor of these numbers.
pub fn from_constant(name: &str, constant: &Constant) -> TensorProto {
    TensorProto {
        dims: constant.shape.iter().map(|&dim| dim as i64).collect(),
        data_type: constant.elem.number(),
        name: name.to_owned(),
        raw_data: constant.to_bytes(),
        ..TensorProto::default()
    }
}

/// Numbers as elements of a type, for tests and options: little-endian bytes.
pub fn encode(elem: Elem, numbers: &[f64]) -> Vec<u8> {
    match elem {
        Elem::Float32 => numbers.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        Elem::Float16 => numbers.iter().flat_map(|&v| half_from_f64(v).to_le_bytes()).collect(),
        Elem::Float64 => numbers.iter().flat_map(|&v| v.to_le_bytes()).collect(),
        _ => numbers
            .iter()
            .flat_map(|&v| (v as i64).to_le_bytes().into_iter().take(elem.bytes()).collect::<Vec<_>>())
            .collect(),
    }
}
