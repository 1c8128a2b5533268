//! Tensors as the interpreter holds them: floats as f64, integers as i128, always representable in their data type
//! unless the evaluation is [`Precision::Exact`](super::Precision::Exact).

use super::{Precision, float16};
use crate::op::Scalar;
use crate::{DType, Descriptor, GraphError, Shape};

/// A tensor's elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// Of a float data type.
    Float(Vec<f64>),
    /// Of an integer data type.
    Int(Vec<i128>),
}

impl Elements {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Elements::Float(values) => values.len(),
            Elements::Int(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `scalar` as often as the descriptor says, not rounded yet.
    pub(super) fn filled(scalar: Scalar, descriptor: &Descriptor) -> Elements {
        let count = descriptor.shape.elements();
        if descriptor.dtype.is_float() {
            Elements::Float(vec![scalar.as_f64(); count])
        } else {
            Elements::Int(vec![integer(scalar); count])
        }
    }

    /// The elements at `positions`, with `fill` where there is none.
    pub(super) fn pick(&self, positions: &[Option<usize>], fill: Scalar) -> Elements {
        fn of<T: Copy>(values: &[T], positions: &[Option<usize>], fill: T) -> Vec<T> {
            positions.iter().map(|position| position.map_or(fill, |position| values[position])).collect()
        }
        match self {
            Elements::Float(values) => Elements::Float(of(values, positions, fill.as_f64())),
            Elements::Int(values) => Elements::Int(of(values, positions, integer(fill))),
        }
    }
}

/// A tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    descriptor: Descriptor,
    elements: Elements,
}

impl Value {
    /// A tensor of these elements, floats rounded and integers wrapped to the data type.
    ///
    /// # Errors
    /// `ValueLength` if their number is not the shape's, or they are integers for a float type or the reverse.
    pub fn new(descriptor: Descriptor, elements: Elements) -> Result<Value, GraphError> {
        let unit = match (&elements, descriptor.dtype.is_float()) {
            (Elements::Float(_), true) if elements.len() == descriptor.shape.elements() => "",
            (Elements::Int(_), false) if elements.len() == descriptor.shape.elements() => "",
            (Elements::Float(_), _) => "floats",
            (Elements::Int(_), _) => "integers",
        };
        if !unit.is_empty() {
            return Err(GraphError::ValueLength { descriptor, got: elements.len(), unit });
        }
        Ok(Value::stored(descriptor, elements, Precision::Stored))
    }

    /// A tensor of numbers given as f64; for integer types each is truncated and wrapped.
    ///
    /// # Errors
    /// `ValueLength` if their number is not the shape's.
    pub fn from_numbers(dtype: DType, shape: Shape, numbers: &[f64]) -> Result<Value, GraphError> {
        let elements = if dtype.is_float() {
            Elements::Float(numbers.to_vec())
        } else {
            Elements::Int(numbers.iter().map(|&number| number as i128).collect())
        };
        Value::new(Descriptor::new(dtype, shape), elements)
    }

    /// A float tensor of these numbers as they are, representable in the data type or not: for evaluation in
    /// [`Precision::Exact`].
    ///
    /// # Errors
    /// `ValueLength` if their number is not the shape's, or the data type is no float type.
    pub fn exact(descriptor: Descriptor, numbers: Vec<f64>) -> Result<Value, GraphError> {
        if numbers.len() != descriptor.shape.elements() || !descriptor.dtype.is_float() {
            return Err(GraphError::ValueLength { descriptor, got: numbers.len(), unit: "floats" });
        }
        Ok(Value { descriptor, elements: Elements::Float(numbers) })
    }

    /// A tensor of zeros.
    pub fn zeros(descriptor: Descriptor) -> Value {
        Value::filled(descriptor, Scalar::Int(0))
    }

    /// `scalar` everywhere, rounded or wrapped to the data type.
    pub fn filled(descriptor: Descriptor, scalar: Scalar) -> Value {
        let elements = Elements::filled(scalar, &descriptor);
        Value::stored(descriptor, elements, Precision::Stored)
    }

    /// The tensor whose dense little-endian bytes are `bytes`.
    ///
    /// # Errors
    /// `ValueLength` if there are fewer or more than [`Descriptor::bytes`].
    pub fn from_bytes(descriptor: Descriptor, bytes: &[u8]) -> Result<Value, GraphError> {
        if bytes.len() != descriptor.bytes() {
            return Err(GraphError::ValueLength { descriptor, got: bytes.len(), unit: "bytes" });
        }
        let elements = match descriptor.dtype {
            DType::F32 => Elements::Float(each(bytes, |b| f64::from(f32::from_le_bytes(b)))),
            DType::F16 => Elements::Float(each(bytes, |b| float16::from_bits(u16::from_le_bytes(b)))),
            DType::I64 => Elements::Int(each(bytes, |b| i64::from_le_bytes(b).into())),
            DType::U64 => Elements::Int(each(bytes, |b| u64::from_le_bytes(b).into())),
            DType::I32 => Elements::Int(each(bytes, |b| i32::from_le_bytes(b).into())),
            DType::U32 => Elements::Int(each(bytes, |b| u32::from_le_bytes(b).into())),
            DType::I8 => Elements::Int(each(bytes, |b| i8::from_le_bytes(b).into())),
            DType::U8 => Elements::Int(each(bytes, |b| u8::from_le_bytes(b).into())),
        };
        Ok(Value { descriptor, elements })
    }

    /// Dense little-endian bytes; floats that do not fit their data type are rounded.
    pub fn to_bytes(&self) -> Vec<u8> {
        let dtype = self.descriptor.dtype;
        match &self.elements {
            Elements::Float(values) if dtype == DType::F16 => {
                values.iter().flat_map(|&value| float16::to_bits(value).to_le_bytes()).collect()
            }
            Elements::Float(values) => values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect(),
            // The low bytes of a two's complement number are that number in the narrower type.
            Elements::Int(values) => {
                values.iter().flat_map(|v| v.to_le_bytes().into_iter().take(dtype.bytes())).collect()
            }
        }
    }

    /// Data type and shape.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The elements in row-major order.
    pub fn elements(&self) -> &Elements {
        &self.elements
    }

    /// The elements as f64, whatever their type.
    pub fn numbers(&self) -> Vec<f64> {
        match &self.elements {
            Elements::Float(values) => values.clone(),
            Elements::Int(values) => values.iter().map(|&value| value as f64).collect(),
        }
    }

    /// The dimensions.
    pub(super) fn dims(&self) -> &[usize] {
        self.descriptor.shape.dims()
    }

    /// The elements of a float tensor.
    pub(super) fn floats(&self) -> &[f64] {
        match &self.elements {
            Elements::Float(values) => values,
            Elements::Int(_) => unreachable!("inference has checked that {} is a float tensor", self.descriptor),
        }
    }

    /// The elements of an integer tensor.
    pub(super) fn ints(&self) -> &[i128] {
        match &self.elements {
            Elements::Int(values) => values,
            Elements::Float(_) => unreachable!("inference has checked that {} is an integer tensor", self.descriptor),
        }
    }

    /// A result as it is kept: floats rounded to the data type unless `precision` is exact, integers wrapped.
    pub(super) fn stored(descriptor: Descriptor, mut elements: Elements, precision: Precision) -> Value {
        assert_eq!(elements.len(), descriptor.shape.elements(), "an operator filled {descriptor}");
        match &mut elements {
            Elements::Float(values) => values.iter_mut().for_each(|v| *v = round(*v, descriptor.dtype, precision)),
            Elements::Int(values) => values.iter_mut().for_each(|v| *v = wrap(*v, descriptor.dtype)),
        }
        Value { descriptor, elements }
    }
}

/// `value` as the nearest number of a float type.
pub(super) fn round(value: f64, dtype: DType, precision: Precision) -> f64 {
    match (precision, dtype) {
        (Precision::Exact, _) => value,
        (Precision::Stored, DType::F16) => float16::round(value),
        (Precision::Stored, _) => f64::from(value as f32),
    }
}

/// `value` modulo the type's range.
pub(super) fn wrap(value: i128, dtype: DType) -> i128 {
    match dtype {
        DType::I64 => (value as i64).into(),
        DType::U64 => (value as u64).into(),
        DType::I32 => (value as i32).into(),
        DType::U32 => (value as u32).into(),
        DType::I8 => (value as i8).into(),
        DType::U8 => (value as u8).into(),
        DType::F32 | DType::F16 => unreachable!("{dtype} is no integer type"),
    }
}

/// The smallest and largest number of an integer type.
pub(super) fn range(dtype: DType) -> [i128; 2] {
    let bits = 8 * dtype.bytes() as u32;
    if dtype.is_signed_integer() { [-(1 << (bits - 1)), (1 << (bits - 1)) - 1] } else { [0, (1 << bits) - 1] }
}

fn integer(scalar: Scalar) -> i128 {
    match scalar {
        Scalar::Int(value) => value,
        Scalar::Float(value) => value as i128,
    }
}

fn each<const N: usize, T>(bytes: &[u8], decode: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.chunks_exact(N).map(|chunk| decode(chunk.try_into().expect("chunks_exact gives N bytes"))).collect()
}
