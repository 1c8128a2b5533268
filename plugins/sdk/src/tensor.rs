//! Tensors on the host's device.

use crate::bindings::tensors as raw;
use crate::bindings::tensors::{DataType, Descriptor};
use crate::error::{Error, Result};

/// A descriptor of that data type and shape.
pub fn descriptor(data_type: DataType, shape: impl Into<Vec<u32>>) -> Descriptor {
    Descriptor { data_type, shape: shape.into() }
}

/// The descriptor of `size` items of this descriptor, stacked.
pub(crate) fn batched_descriptor(item: &Descriptor, size: u32) -> Descriptor {
    let mut shape = Vec::with_capacity(item.shape.len() + 1);
    shape.push(size);
    shape.extend_from_slice(&item.shape);
    Descriptor { data_type: item.data_type, shape }
}

/// A dense row-major tensor of the host's. Dropping it frees it.
#[derive(Debug)]
pub struct Tensor(pub(crate) raw::Tensor);

impl Tensor {
    /// A tensor of these little-endian elements in row-major order.
    ///
    /// # Errors
    /// `Host` if they are not as many as the descriptor takes, or a limit is passed.
    pub fn from_bytes(descriptor: &Descriptor, data: &[u8]) -> Result<Self> {
        Ok(Self(raw::Tensor::from_bytes(descriptor, data)?))
    }

    /// A `float32` tensor.
    ///
    /// # Errors
    /// As [`Tensor::from_bytes`].
    pub fn from_f32(shape: &[u32], data: &[f32]) -> Result<Self> {
        let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self::from_bytes(&descriptor(DataType::Float32, shape), &bytes)
    }

    /// An `int32` tensor.
    ///
    /// # Errors
    /// As [`Tensor::from_bytes`].
    pub fn from_i32(shape: &[u32], data: &[i32]) -> Result<Self> {
        let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self::from_bytes(&descriptor(DataType::Int32, shape), &bytes)
    }

    /// Its data type and shape.
    pub fn descriptor(&self) -> Descriptor {
        self.0.descriptor()
    }

    /// Its elements, little-endian and row-major. Waits for the work that produces them.
    ///
    /// # Errors
    /// `Host` if that work failed.
    pub fn read(&self) -> Result<Vec<u8>> {
        Ok(self.0.read()?)
    }

    /// The elements of a `float32` tensor. Waits for the work that produces them.
    ///
    /// # Errors
    /// As [`Tensor::read`].
    pub fn read_f32(&self) -> Result<Vec<f32>> {
        self.read_words(f32::from_le_bytes)
    }

    /// The elements of an `int32` tensor. Waits for the work that produces them.
    ///
    /// # Errors
    /// As [`Tensor::read`].
    pub fn read_i32(&self) -> Result<Vec<i32>> {
        self.read_words(i32::from_le_bytes)
    }

    /// The elements of a `uint32` tensor. Waits for the work that produces them.
    ///
    /// # Errors
    /// As [`Tensor::read`].
    pub fn read_u32(&self) -> Result<Vec<u32>> {
        self.read_words(u32::from_le_bytes)
    }

    fn read_words<T>(&self, element: impl Fn([u8; 4]) -> T) -> Result<Vec<T>> {
        Ok(self.read()?.as_chunks::<4>().0.iter().map(|word| element(*word)).collect())
    }
}

/// The bytes of a text before the zeros that fill up its tensor.
pub fn unpadded(text: &[u8]) -> &[u8] {
    let length = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &text[..length]
}

/// A tensor and the name of the input or output it belongs to.
#[derive(Debug)]
pub struct NamedTensor {
    /// The name.
    pub name: String,
    /// The tensor.
    pub tensor: Tensor,
}

/// The tensor of that name.
///
/// # Errors
/// `NoSuch` with the names there are.
pub fn named<'a>(tensors: &'a [NamedTensor], name: &str) -> Result<&'a Tensor> {
    let found = tensors.iter().find(|other| other.name == name);
    found.map(|named| &named.tensor).ok_or_else(|| Error::NoSuch {
        what: "tensor",
        name: name.to_owned(),
        known: tensors.iter().map(|named| named.name.clone()).collect(),
    })
}

impl From<raw::NamedTensor> for NamedTensor {
    fn from(named: raw::NamedTensor) -> Self {
        Self { name: named.name, tensor: Tensor(named.tensor) }
    }
}

impl From<NamedTensor> for raw::NamedTensor {
    fn from(named: NamedTensor) -> Self {
        Self { name: named.name, tensor: named.tensor.0 }
    }
}
