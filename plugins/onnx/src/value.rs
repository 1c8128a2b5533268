//! Values while a graph is built: tensors known now, and operands of the graph.
//!
//! Arithmetic on shapes is done here and never reaches the host: a value stays a [`ConstantTensor`] until an operand is needed.

use std::cell::Cell;
use std::rc::Rc;

use crate::elem::{ElementType, f16_bits_to_f64, f64_to_f16_bits};
use crate::error::{Error, Result};

/// Elements of one tensor that are kept and computed with here; larger tensors are the host's.
pub const FOLD_ELEMENTS_MAX: usize = 1 << 16;

/// Elements in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub enum ConstantElements {
    /// Of a float type, each representable in it.
    Float(Vec<f64>),
    /// Of an integer type; `uint64` above `i64::MAX` wraps.
    Int(Vec<i64>),
}

/// What is known of an initializer's use, to decide where it is kept.
#[derive(Debug)]
pub struct InitializerUse {
    /// The initializer's name.
    pub name: String,
    /// Whether its elements were read while the graph was built.
    pub read: Cell<bool>,
}

/// A tensor known now.
#[derive(Debug, Clone)]
pub struct ConstantTensor {
    /// The elements' type.
    pub elem: ElementType,
    /// Dimensions.
    pub shape: Vec<usize>,
    data: ConstantElements,
    origin: Option<Rc<InitializerUse>>,
}

impl ConstantTensor {
    /// A tensor of these elements, wrapped and rounded to their type.
    pub fn new(elem: ElementType, shape: Vec<usize>, mut data: ConstantElements) -> Self {
        match &mut data {
            ConstantElements::Float(values) => values.iter_mut().for_each(|value| *value = round_to_type(*value, elem)),
            ConstantElements::Int(values) => values.iter_mut().for_each(|value| *value = wrap_to_type(*value, elem)),
        }
        Self { elem, shape, data, origin: None }
    }

    /// Integers along one axis: what shapes are.
    pub fn ints(values: Vec<i64>) -> Self {
        Self::new(ElementType::Int64, vec![values.len()], ConstantElements::Int(values))
    }

    /// One number, truncated for an integer type.
    pub fn scalar(elem: ElementType, value: f64) -> Self {
        Self::filled(elem, Vec::new(), value)
    }

    /// One number everywhere. The caller bounds the number of elements.
    pub fn filled(elem: ElementType, shape: Vec<usize>, value: f64) -> Self {
        let count = shape.iter().product();
        let data = if elem.is_float() {
            ConstantElements::Float(vec![value; count])
        } else {
            ConstantElements::Int(vec![value as i64; count])
        };
        Self::new(elem, shape, data)
    }

    /// The tensor of these little-endian elements; there are as many as the shape says.
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

    /// The elements, little-endian.
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

    /// The constant, known to be an initializer: reading its elements is then noted.
    #[must_use]
    pub fn from_initializer(mut self, origin: &Rc<InitializerUse>) -> Self {
        self.origin = Some(Rc::clone(origin));
        self
    }

    /// The elements, for computing with them.
    pub fn data(&self) -> &ConstantElements {
        if let Some(origin) = &self.origin {
            origin.read.set(true);
        }
        &self.data
    }

    /// The elements, to be made an operand of the graph: that needs no knowledge of them.
    pub fn data_unmarked(&self) -> &ConstantElements {
        &self.data
    }

    /// The initializer it is, if it is one as it stands in the file.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_ref().map(|origin| origin.name.as_str())
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as floats.
    pub fn floats(&self) -> Vec<f64> {
        match self.data() {
            ConstantElements::Float(values) => values.clone(),
            ConstantElements::Int(values) => values.iter().map(|&value| value as f64).collect(),
        }
    }

    /// The elements as integers; floats are truncated.
    pub fn integers(&self) -> Vec<i64> {
        match self.data() {
            ConstantElements::Float(values) => values.iter().map(|&value| value as i64).collect(),
            ConstantElements::Int(values) => values.clone(),
        }
    }
}

/// `value` as the nearest number of a float type.
fn round_to_type(value: f64, elem: ElementType) -> f64 {
    match elem {
        ElementType::Float32 => f64::from(value as f32),
        ElementType::Float16 => f16_bits_to_f64(f64_to_f16_bits(value)),
        _ => value,
    }
}

/// `value` modulo the range of an integer type.
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

/// A value of the graph. It holds no data; `id` is the backend's.
#[derive(Debug, Clone)]
pub struct BackendOperand {
    /// What the backend calls it.
    pub id: u32,
    /// The elements' type.
    pub elem: ElementType,
    /// Dimensions.
    pub shape: Rc<[usize]>,
}

/// A tensor known now, or a value of the graph.
#[derive(Debug, Clone)]
pub enum GraphValue {
    /// Known now.
    Constant(Rc<ConstantTensor>),
    /// Of the graph.
    Operand(BackendOperand),
}

impl GraphValue {
    /// The elements' type.
    pub fn elem(&self) -> ElementType {
        match self {
            Self::Constant(constant) => constant.elem,
            Self::Operand(operand) => operand.elem,
        }
    }

    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Constant(constant) => &constant.shape,
            Self::Operand(operand) => &operand.shape,
        }
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dimension at `axis`.
    ///
    /// # Errors
    /// `Invalid` if there is no such axis.
    pub fn dim(&self, axis: usize) -> Result<usize> {
        let found = self.shape().get(axis).copied();
        found.ok_or_else(|| Error::invalid(format!("there is no axis {axis} in {:?}", self.shape())))
    }

    /// The tensor, if it is known now.
    pub fn constant(&self) -> Option<&Rc<ConstantTensor>> {
        match self {
            Self::Constant(constant) => Some(constant),
            Self::Operand(_) => None,
        }
    }

    /// The axis that a number names, negative ones counting from the end.
    ///
    /// # Errors
    /// `Invalid` if there is no such axis.
    pub fn axis(&self, axis: i64) -> Result<usize> {
        normalize_axis(axis, self.rank())
    }

    /// The axes that numbers name, sorted.
    ///
    /// # Errors
    /// `Invalid` if there is no such axis or one is named twice.
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

/// The axis that a number names in a tensor of this rank.
///
/// # Errors
/// `Invalid` if there is no such axis.
pub fn normalize_axis(axis: i64, rank: usize) -> Result<usize> {
    let from_start = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    match usize::try_from(from_start) {
        Ok(found) if found < rank => Ok(found),
        _ => Err(Error::invalid(format!("there is no axis {axis} in {rank} dimensions"))),
    }
}

/// A size that a file gives.
///
/// # Errors
/// `Invalid` if it is negative or beyond what a tensor can have.
pub fn checked_size(value: i64, what: &str) -> Result<usize> {
    match usize::try_from(value) {
        Ok(size) if size <= i32::MAX as usize => Ok(size),
        _ => Err(Error::invalid(format!("{what} must be from 0 to 2147483647, not {value}"))),
    }
}

/// The number of elements of a shape.
///
/// # Errors
/// `Invalid` if there are more than a tensor can have.
pub fn element_count(shape: &[usize]) -> Result<usize> {
    // A zero anywhere must not hide an overflow elsewhere.
    let product = shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim.max(1)));
    match product {
        Some(n) if n <= i32::MAX as usize => Ok(shape.iter().product()),
        _ => Err(Error::invalid(format!("a tensor of shape {shape:?} has too many elements"))),
    }
}

/// The shape that two shapes have together: aligned at the last dimension, dimensions of size 1 repeated.
///
/// # Errors
/// `Invalid` if they do not fit.
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
