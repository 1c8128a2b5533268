//! Values while a graph is built: constants and operands of the graph.
//!
//! Arithmetic on shapes is folded here and never reaches the host. A value stays a [`ConstantTensor`] until an operand
//! is needed.

use std::cell::Cell;
use std::rc::Rc;

use crate::elem::{ElementType, f16_bits_to_f64, f64_to_f16_bits};
use crate::error::{Error, Result};

/// The maximum number of elements of a tensor that is constant-folded. The host computes larger tensors.
pub const FOLD_ELEMENTS_MAX: usize = 1 << 16;

/// Elements in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub enum ConstantElements {
    /// Elements of a float type, each representable in it.
    Float(Vec<f64>),
    /// Elements of an integer type. `uint64` above `i64::MAX` wraps.
    Int(Vec<i64>),
}

/// The use of an initializer, which decides whether it stays in the configuration.
#[derive(Debug)]
pub struct InitializerUse {
    /// The initializer's name.
    pub name: String,
    /// Whether its elements were read while the graph was built.
    pub read: Cell<bool>,
}

/// A constant tensor.
#[derive(Debug, Clone)]
pub struct ConstantTensor {
    /// The element type.
    pub elem: ElementType,
    /// The dimensions.
    pub shape: Vec<usize>,
    data: ConstantElements,
    origin: Option<Rc<InitializerUse>>,
}

impl ConstantTensor {
    /// Creates a constant with the elements wrapped or rounded to the type.
    pub fn new(elem: ElementType, shape: Vec<usize>, mut data: ConstantElements) -> Self {
        match &mut data {
            ConstantElements::Float(values) => values.iter_mut().for_each(|value| *value = round_to_type(*value, elem)),
            ConstantElements::Int(values) => values.iter_mut().for_each(|value| *value = wrap_to_type(*value, elem)),
        }
        Self { elem, shape, data, origin: None }
    }

    /// Creates a 1-D constant of `int64`, the type of shapes.
    pub fn ints(values: Vec<i64>) -> Self {
        Self::new(ElementType::Int64, vec![values.len()], ConstantElements::Int(values))
    }

    /// Creates a scalar. The number is truncated for an integer type.
    pub fn scalar(elem: ElementType, value: f64) -> Self {
        Self::filled(elem, Vec::new(), value)
    }

    /// Creates a constant filled with one number. The caller bounds the number of elements.
    pub fn filled(elem: ElementType, shape: Vec<usize>, value: f64) -> Self {
        let count = shape.iter().product();
        let data = if elem.is_float() {
            ConstantElements::Float(vec![value; count])
        } else {
            ConstantElements::Int(vec![value as i64; count])
        };
        Self::new(elem, shape, data)
    }

    /// Creates a constant from little-endian elements. Their number must match the shape.
    pub fn from_bytes(elem: ElementType, shape: Vec<usize>, bytes: &[u8]) -> Self {
        fn each<const N: usize, T>(bytes: &[u8], decode: impl Fn([u8; N]) -> T) -> Vec<T> {
            bytes.as_chunks::<N>().0.iter().map(|chunk| decode(*chunk)).collect()
        }
        let data = match elem {
            ElementType::Float32 => ConstantElements::Float(each(bytes, |b| f64::from(f32::from_le_bytes(b)))),
            ElementType::Float16 => ConstantElements::Float(each(bytes, |b| f16_bits_to_f64(u16::from_le_bytes(b)))),
            ElementType::Float64 => ConstantElements::Float(each(bytes, f64::from_le_bytes)),
            ElementType::Int64 => ConstantElements::Int(each(bytes, i64::from_le_bytes)),
            ElementType::Uint64 => ConstantElements::Int(each(bytes, |b| u64::from_le_bytes(b) as i64)),
            ElementType::Int32 => ConstantElements::Int(each(bytes, |b| i32::from_le_bytes(b).into())),
            ElementType::Uint32 => ConstantElements::Int(each(bytes, |b| u32::from_le_bytes(b).into())),
            ElementType::Int8 => ConstantElements::Int(each(bytes, |b| i8::from_le_bytes(b).into())),
            ElementType::Uint8 => ConstantElements::Int(each(bytes, |b| u8::from_le_bytes(b).into())),
            ElementType::Bool => ConstantElements::Int(each(bytes, |[b]| i64::from(b != 0))),
        };
        Self { elem, shape, data, origin: None }
    }

    /// Returns the elements as little-endian bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.data {
            ConstantElements::Float(values) => match self.elem {
                ElementType::Float16 => values.iter().flat_map(|&v| f64_to_f16_bits(v).to_le_bytes()).collect(),
                ElementType::Float64 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
                _ => values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
            },
            // The low bytes of a two's complement number are that number in the narrower type.
            ConstantElements::Int(values) => {
                let bytes = self.elem.element_bytes();
                values.iter().flat_map(|v| v.to_le_bytes().into_iter().take(bytes)).collect()
            }
        }
    }

    /// Marks the constant as an initializer, so that reading its elements is recorded.
    #[must_use]
    pub fn from_initializer(mut self, origin: &Rc<InitializerUse>) -> Self {
        self.origin = Some(Rc::clone(origin));
        self
    }

    /// Returns the elements to compute with, and records that they were read.
    pub fn data(&self) -> &ConstantElements {
        if let Some(origin) = &self.origin {
            origin.read.set(true);
        }
        &self.data
    }

    /// Returns the elements to create an operand of the graph, without recording a read.
    pub fn data_unmarked(&self) -> &ConstantElements {
        &self.data
    }

    /// Returns the name of the initializer, or `None` if the constant is not an unchanged initializer.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_ref().map(|origin| origin.name.as_str())
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements as floats.
    pub fn floats(&self) -> Vec<f64> {
        match self.data() {
            ConstantElements::Float(values) => values.clone(),
            ConstantElements::Int(values) => values.iter().map(|&value| value as f64).collect(),
        }
    }

    /// Returns the elements as integers. Floats are truncated.
    pub fn integers(&self) -> Vec<i64> {
        match self.data() {
            ConstantElements::Float(values) => values.iter().map(|&value| value as i64).collect(),
            ConstantElements::Int(values) => values.clone(),
        }
    }
}

/// Rounds `value` to the nearest number of a float type.
fn round_to_type(value: f64, elem: ElementType) -> f64 {
    match elem {
        ElementType::Float32 => f64::from(value as f32),
        ElementType::Float16 => f16_bits_to_f64(f64_to_f16_bits(value)),
        _ => value,
    }
}

/// Wraps `value` to the range of an integer type.
fn wrap_to_type(value: i64, elem: ElementType) -> i64 {
    match elem {
        ElementType::Int32 => i64::from(value as i32),
        ElementType::Uint32 => i64::from(value as u32),
        ElementType::Int8 => i64::from(value as i8),
        ElementType::Uint8 => i64::from(value as u8),
        ElementType::Bool => i64::from(value != 0),
        _ => value,
    }
}

/// An operand of the graph. It holds no data.
#[derive(Debug, Clone)]
pub struct BackendOperand {
    /// The backend's identifier.
    pub id: u32,
    /// The element type.
    pub elem: ElementType,
    /// The dimensions.
    pub shape: Rc<[usize]>,
}

/// A constant, or an operand of the graph.
#[derive(Debug, Clone)]
pub enum GraphValue {
    /// A constant.
    Constant(Rc<ConstantTensor>),
    /// An operand of the graph.
    Operand(BackendOperand),
}

impl GraphValue {
    /// Returns the element type.
    pub fn elem(&self) -> ElementType {
        match self {
            Self::Constant(constant) => constant.elem,
            Self::Operand(operand) => operand.elem,
        }
    }

    /// Returns the dimensions.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Constant(constant) => &constant.shape,
            Self::Operand(operand) => &operand.shape,
        }
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// Returns whether the value has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the dimension at `axis`.
    ///
    /// # Errors
    /// Returns `Invalid` if there is no such axis.
    pub fn dim(&self, axis: usize) -> Result<usize> {
        let found = self.shape().get(axis).copied();
        found.ok_or_else(|| Error::invalid(format!("there is no axis {axis} in {:?}", self.shape())))
    }

    /// Returns the constant, or `None` for an operand of the graph.
    pub fn constant(&self) -> Option<&Rc<ConstantTensor>> {
        match self {
            Self::Constant(constant) => Some(constant),
            Self::Operand(_) => None,
        }
    }

    /// Returns the index of an axis. Negative numbers count from the end.
    ///
    /// # Errors
    /// Returns `Invalid` if there is no such axis.
    pub fn axis(&self, axis: i64) -> Result<usize> {
        normalize_axis(axis, self.rank())
    }

    /// Returns the indices of axes, sorted.
    ///
    /// # Errors
    /// Returns `Invalid` if there is no such axis or an axis is named twice.
    pub fn axes(&self, axes: &[i64]) -> Result<Vec<usize>> {
        let mut axes = axes.iter().map(|&axis| self.axis(axis)).collect::<Result<Vec<_>>>()?;
        axes.sort_unstable();
        if axes.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid(format!("an axis is named twice in {axes:?}")));
        }
        Ok(axes)
    }
}

impl From<ConstantTensor> for GraphValue {
    fn from(constant: ConstantTensor) -> Self {
        Self::Constant(Rc::new(constant))
    }
}

/// Returns the index of an axis in a tensor of this rank. Negative numbers count from the end.
///
/// # Errors
/// Returns `Invalid` if there is no such axis.
pub fn normalize_axis(axis: i64, rank: usize) -> Result<usize> {
    let from_start = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    match usize::try_from(from_start) {
        Ok(found) if found < rank => Ok(found),
        _ => Err(Error::invalid(format!("there is no axis {axis} in {rank} dimensions"))),
    }
}

/// Checks a size that a file gives.
///
/// # Errors
/// Returns `Invalid` if the size is negative or larger than a tensor's can be.
pub fn checked_size(value: i64, what: &str) -> Result<usize> {
    match usize::try_from(value) {
        Ok(size) if size <= i32::MAX as usize => Ok(size),
        _ => Err(Error::invalid(format!("{what} must be from 0 to 2147483647, not {value}"))),
    }
}

/// Returns the number of elements of a shape.
///
/// # Errors
/// Returns `Invalid` if the shape has more elements than a tensor can have.
pub fn element_count(shape: &[usize]) -> Result<usize> {
    // A zero in one dimension must not hide an overflow in another.
    let product = shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim.max(1)));
    match product {
        Some(n) if n <= i32::MAX as usize => Ok(shape.iter().product()),
        _ => Err(Error::invalid(format!("a tensor of shape {shape:?} has too many elements"))),
    }
}

/// Returns the shape that two shapes broadcast to: aligned at the last dimension, with dimensions of size 1 repeated.
///
/// # Errors
/// Returns `Invalid` if the shapes do not broadcast.
pub fn broadcast_shapes(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    let dims = (0..rank).map(|axis| match (at(a, axis), at(b, axis)) {
        (x, y) if x == y => Ok(x),
        (1, y) => Ok(y),
        (x, 1) => Ok(x),
        _ => Err(Error::invalid(format!("shapes {a:?} and {b:?} do not fit"))),
    });
    dims.collect()
}
