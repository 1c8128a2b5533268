//! Tensors on the host's device.

use crate::bindings::tensors as raw;
use crate::bindings::tensors::{DataType, Descriptor};
use crate::call_site::AtCallSite;
use crate::error::{Error, Result};

/// Returns a descriptor of this data type and shape. The shape of a scalar is `[]`.
pub fn descriptor(data_type: DataType, shape: impl Into<Vec<u32>>) -> Descriptor {
    Descriptor { data_type, shape: shape.into() }
}

/// Returns the descriptor of `size` stacked items.
pub(crate) fn batched_descriptor(item: &Descriptor, size: u32) -> Descriptor {
    let mut shape = Vec::with_capacity(item.shape.len() + 1);
    shape.push(size);
    shape.extend_from_slice(&item.shape);
    Descriptor { data_type: item.data_type, shape }
}

/// A dense row-major tensor on the host. Dropping it frees it.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f() -> Result<()> {
/// let x = Tensor::from_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// assert_eq!(x.descriptor().shape, [2, 3]);
/// let elements: Vec<f32> = x.read_f32()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tensor(pub(crate) raw::Tensor);

impl Tensor {
    /// Creates a tensor from little-endian elements in row-major order.
    ///
    /// # Errors
    /// Returns `Host` if the number of bytes does not match the descriptor, or a limit is exceeded.
    #[track_caller]
    pub fn from_bytes(descriptor: &Descriptor, data: &[u8]) -> Result<Self> {
        raw::Tensor::from_bytes(descriptor, data).map(Self).at_caller()
    }

    /// Creates a `float32` tensor.
    ///
    /// # Errors
    /// As [`Tensor::from_bytes`].
    #[track_caller]
    pub fn from_f32(shape: &[u32], data: &[f32]) -> Result<Self> {
        let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self::from_bytes(&descriptor(DataType::Float32, shape), &bytes)
    }

    /// Creates an `int32` tensor.
    ///
    /// # Errors
    /// As [`Tensor::from_bytes`].
    #[track_caller]
    pub fn from_i32(shape: &[u32], data: &[i32]) -> Result<Self> {
        let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self::from_bytes(&descriptor(DataType::Int32, shape), &bytes)
    }

    /// Returns the data type and shape.
    pub fn descriptor(&self) -> Descriptor {
        self.0.descriptor()
    }

    /// Returns the elements, little-endian and row-major. Waits for the work that produces them.
    ///
    /// # Errors
    /// Returns `Host` if that work failed.
    #[track_caller]
    pub fn read(&self) -> Result<Vec<u8>> {
        self.0.read().at_caller()
    }

    /// Returns the elements of a `float32` tensor. Waits for the work that produces them.
    ///
    /// # Errors
    /// As [`Tensor::read`].
    #[track_caller]
    pub fn read_f32(&self) -> Result<Vec<f32>> {
        self.read_words(f32::from_le_bytes)
    }

    /// Returns the elements of an `int32` tensor. Waits for the work that produces them.
    ///
    /// # Errors
    /// As [`Tensor::read`].
    #[track_caller]
    pub fn read_i32(&self) -> Result<Vec<i32>> {
        self.read_words(i32::from_le_bytes)
    }

    /// Returns the elements of a `uint32` tensor. Waits for the work that produces them.
    ///
    /// # Errors
    /// As [`Tensor::read`].
    #[track_caller]
    pub fn read_u32(&self) -> Result<Vec<u32>> {
        self.read_words(u32::from_le_bytes)
    }

    #[track_caller]
    fn read_words<T>(&self, element: impl Fn([u8; 4]) -> T) -> Result<Vec<T>> {
        Ok(self.read()?.as_chunks::<4>().0.iter().map(|word| element(*word)).collect())
    }
}

/// Returns the bytes of a text without the zeros that pad it.
///
/// ```
/// assert_eq!(saggar_plugin::unpadded(b"cat\0\0"), b"cat");
/// ```
pub fn unpadded(text: &[u8]) -> &[u8] {
    let length = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &text[..length]
}

/// A tensor with the name of its input, output or field.
#[derive(Debug)]
pub struct NamedTensor {
    /// Name of the input, output or field.
    pub name: String,
    /// The tensor.
    pub tensor: Tensor,
}

/// Returns the tensor with this name.
///
/// # Errors
/// Returns `NoSuch`, with the existing names, if there is no such tensor.
#[track_caller]
pub fn named<'a>(tensors: &'a [NamedTensor], name: &str) -> Result<&'a Tensor> {
    let found = tensors.iter().find(|other| other.name == name);
    let missing = || Error::NoSuch {
        what: "tensor",
        name: name.to_owned(),
        known: tensors.iter().map(|named| named.name.clone()).collect(),
    };
    found.map(|named| &named.tensor).ok_or_else(missing).at_caller()
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
