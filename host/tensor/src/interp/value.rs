//! The interpreter's tensors: floats as f64 and integers as i128, always representable in their data type unless the
//! evaluation is [`InterpPrecision::Exact`].

use super::{InterpPrecision, float16};
use crate::op::Scalar;
use crate::{DType, Descriptor, GraphError, Shape};

/// A tensor's elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum InterpElements {
    /// Elements of a float data type.
    Float(Vec<f64>),
    /// Elements of an integer data type.
    Int(Vec<i128>),
}

impl InterpElements {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            InterpElements::Float(values) => values.len(),
            InterpElements::Int(values) => values.len(),
        }
    }

    /// Returns whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `scalar` repeated for every element of the descriptor, not rounded yet.
    pub(super) fn full(scalar: Scalar, descriptor: &Descriptor) -> InterpElements {
        let count = descriptor.shape.elements();
        if descriptor.dtype.is_float() {
            InterpElements::Float(vec![scalar.as_f64(); count])
        } else {
            InterpElements::Int(vec![integer(scalar); count])
        }
    }

    /// Returns the elements at `positions`, or `fill` for `None`.
    pub(super) fn pick_positions(&self, positions: &[Option<usize>], fill: Scalar) -> InterpElements {
        fn of<T: Copy>(values: &[T], positions: &[Option<usize>], fill: T) -> Vec<T> {
            positions.iter().map(|position| position.map_or(fill, |position| values[position])).collect()
        }
        match self {
            InterpElements::Float(values) => InterpElements::Float(of(values, positions, fill.as_f64())),
            InterpElements::Int(values) => InterpElements::Int(of(values, positions, integer(fill))),
        }
    }
}

/// A tensor value.
#[derive(Clone, Debug, PartialEq)]
pub struct InterpTensor {
    descriptor: Descriptor,
    elements: InterpElements,
}

impl InterpTensor {
    /// Creates a tensor of these elements; floats are rounded and integers wrapped to the data type.
    ///
    /// # Errors
    /// Returns `ValueLength` if the shape has another number of elements, or if integers are given for a float type or
    /// floats for an integer type.
    pub fn new(descriptor: Descriptor, elements: InterpElements) -> Result<InterpTensor, GraphError> {
        let unit = match (&elements, descriptor.dtype.is_float()) {
            (InterpElements::Float(_), true) if elements.len() == descriptor.shape.elements() => "",
            (InterpElements::Int(_), false) if elements.len() == descriptor.shape.elements() => "",
            (InterpElements::Float(_), _) => "floats",
            (InterpElements::Int(_), _) => "integers",
        };
        if !unit.is_empty() {
            return Err(GraphError::ValueLength { descriptor, got: elements.len(), unit });
        }
        Ok(InterpTensor::rounded_to_dtype(descriptor, elements, InterpPrecision::Stored))
    }

    /// Creates a tensor of numbers given as f64; for integer types each is truncated and wrapped.
    ///
    /// # Errors
    /// Returns `ValueLength` if the shape has another number of elements.
    pub fn from_numbers(dtype: DType, shape: Shape, numbers: &[f64]) -> Result<InterpTensor, GraphError> {
        let elements = if dtype.is_float() {
            InterpElements::Float(numbers.to_vec())
        } else {
            InterpElements::Int(numbers.iter().map(|&number| number as i128).collect())
        };
        InterpTensor::new(Descriptor::new(dtype, shape), elements)
    }

    /// Creates a float tensor of these numbers without rounding, for evaluation in [`InterpPrecision::Exact`].
    ///
    /// # Errors
    /// Returns `ValueLength` if the shape has another number of elements, or if the data type is not a float type.
    pub fn from_exact_numbers(descriptor: Descriptor, numbers: Vec<f64>) -> Result<InterpTensor, GraphError> {
        if numbers.len() != descriptor.shape.elements() || !descriptor.dtype.is_float() {
            return Err(GraphError::ValueLength { descriptor, got: numbers.len(), unit: "floats" });
        }
        Ok(InterpTensor { descriptor, elements: InterpElements::Float(numbers) })
    }

    /// Creates a tensor of zeros.
    pub fn zeros(descriptor: Descriptor) -> InterpTensor {
        InterpTensor::full(descriptor, Scalar::Int(0))
    }

    /// Creates a tensor filled with `scalar`, rounded or wrapped to the data type.
    pub fn full(descriptor: Descriptor, scalar: Scalar) -> InterpTensor {
        let elements = InterpElements::full(scalar, &descriptor);
        InterpTensor::rounded_to_dtype(descriptor, elements, InterpPrecision::Stored)
    }

    /// Creates the tensor whose dense little-endian bytes are `bytes`.
    ///
    /// # Errors
    /// Returns `ValueLength` if the number of bytes is not [`Descriptor::bytes`].
    pub fn from_bytes(descriptor: Descriptor, bytes: &[u8]) -> Result<InterpTensor, GraphError> {
        if bytes.len() != descriptor.bytes() {
            return Err(GraphError::ValueLength { descriptor, got: bytes.len(), unit: "bytes" });
        }
        let elements = match descriptor.dtype {
            DType::F32 => InterpElements::Float(decode_elements(bytes, |b| f64::from(f32::from_le_bytes(b)))),
            DType::F16 => InterpElements::Float(decode_elements(bytes, |b| float16::from_bits(u16::from_le_bytes(b)))),
            DType::I64 => InterpElements::Int(decode_elements(bytes, |b| i64::from_le_bytes(b).into())),
            DType::U64 => InterpElements::Int(decode_elements(bytes, |b| u64::from_le_bytes(b).into())),
            DType::I32 => InterpElements::Int(decode_elements(bytes, |b| i32::from_le_bytes(b).into())),
            DType::U32 => InterpElements::Int(decode_elements(bytes, |b| u32::from_le_bytes(b).into())),
            DType::I8 => InterpElements::Int(decode_elements(bytes, |b| i8::from_le_bytes(b).into())),
            DType::U8 => InterpElements::Int(decode_elements(bytes, |b| u8::from_le_bytes(b).into())),
        };
        Ok(InterpTensor { descriptor, elements })
    }

    /// Returns dense little-endian bytes; floats that do not fit their data type are rounded.
    pub fn to_bytes(&self) -> Vec<u8> {
        let dtype = self.descriptor.dtype;
        match &self.elements {
            InterpElements::Float(values) if dtype == DType::F16 => {
                values.iter().flat_map(|&value| float16::to_bits(value).to_le_bytes()).collect()
            }
            InterpElements::Float(values) => values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect(),
            // The low bytes of a two's complement number are the number in the narrower type.
            InterpElements::Int(values) => {
                values.iter().flat_map(|v| v.to_le_bytes().into_iter().take(dtype.bytes())).collect()
            }
        }
    }

    /// Returns data type and shape.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Returns the elements in row-major order.
    pub fn elements(&self) -> &InterpElements {
        &self.elements
    }

    /// Returns the elements as f64, whatever their type.
    pub fn to_f64_numbers(&self) -> Vec<f64> {
        match &self.elements {
            InterpElements::Float(values) => values.clone(),
            InterpElements::Int(values) => values.iter().map(|&value| value as f64).collect(),
        }
    }

    /// Returns the dimensions.
    pub(super) fn dims(&self) -> &[usize] {
        self.descriptor.shape.dims()
    }

    /// Returns the elements of a float tensor.
    pub(super) fn floats(&self) -> &[f64] {
        match &self.elements {
            InterpElements::Float(values) => values,
            InterpElements::Int(_) => unreachable!("inference has checked that {} is a float tensor", self.descriptor),
        }
    }

    /// Returns the elements of an integer tensor.
    pub(super) fn ints(&self) -> &[i128] {
        match &self.elements {
            InterpElements::Int(values) => values,
            InterpElements::Float(_) => {
                unreachable!("inference has checked that {} is an integer tensor", self.descriptor)
            }
        }
    }

    /// Returns a result in stored form: floats rounded to the data type unless `precision` is exact, integers wrapped.
    pub(super) fn rounded_to_dtype(
        descriptor: Descriptor,
        mut elements: InterpElements,
        precision: InterpPrecision,
    ) -> InterpTensor {
        assert_eq!(elements.len(), descriptor.shape.elements(), "an operator filled {descriptor}");
        match &mut elements {
            InterpElements::Float(values) => {
                values.iter_mut().for_each(|v| *v = round_to_dtype(*v, descriptor.dtype, precision))
            }
            InterpElements::Int(values) => values.iter_mut().for_each(|v| *v = wrap_to_dtype(*v, descriptor.dtype)),
        }
        InterpTensor { descriptor, elements }
    }
}

/// Returns the number of a float type nearest to `value`.
pub(super) fn round_to_dtype(value: f64, dtype: DType, precision: InterpPrecision) -> f64 {
    match (precision, dtype) {
        (InterpPrecision::Exact, _) => value,
        (InterpPrecision::Stored, DType::F16) => float16::round(value),
        (InterpPrecision::Stored, _) => f64::from(value as f32),
    }
}

/// Returns `value` modulo the type's range.
pub(super) fn wrap_to_dtype(value: i128, dtype: DType) -> i128 {
    match dtype {
        DType::I64 => (value as i64).into(),
        DType::U64 => (value as u64).into(),
        DType::I32 => (value as i32).into(),
        DType::U32 => (value as u32).into(),
        DType::I8 => (value as i8).into(),
        DType::U8 => (value as u8).into(),
        DType::F32 | DType::F16 => unreachable!("{dtype} is not an integer type"),
    }
}

/// Returns the smallest and largest number of an integer type.
pub(super) fn integer_range(dtype: DType) -> [i128; 2] {
    let bits = 8 * dtype.bytes() as u32;
    if dtype.is_signed_integer() { [-(1 << (bits - 1)), (1 << (bits - 1)) - 1] } else { [0, (1 << bits) - 1] }
}

fn integer(scalar: Scalar) -> i128 {
    match scalar {
        Scalar::Int(value) => value,
        Scalar::Float(value) => value as i128,
    }
}

fn decode_elements<const N: usize, T>(bytes: &[u8], decode: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.chunks_exact(N).map(|chunk| decode(chunk.try_into().expect("chunks_exact gives N bytes"))).collect()
}
