//! Type and shape inference: the descriptor of each primitive's result, or the reason why its operands are refused.
//!
//! Attributes come from plugins. Every computation on them is checked for overflow, and every accepted size, offset,
//! stride and padding is at most [`crate::limits::ELEMENTS_MAX`], so kernels can use 32-bit integers. Layouts and
//! kernels are chosen elsewhere.

mod binary;
mod contract;
mod convolution;
mod index;
mod movement;
mod reduce;
mod source;
mod unary;

use crate::error::GraphError;
use crate::limits::ELEMENTS_MAX;
use crate::op::{Op, OperandTypes, Scalar};
use crate::{DType, Descriptor, Shape};

/// Returns data type and shape of `op`'s result for these operands.
///
/// `declared` is the descriptor that the graph declares for a source (input, variable, constant, fill, iota or random);
/// other operators ignore it.
///
/// # Errors
/// Returns the [`GraphError`] for wrong operand counts, data types, ranks, dimensions or attributes, and `Undeclared`
/// for a source without `declared`.
pub fn infer(op: &Op, inputs: &[&Descriptor], declared: Option<&Descriptor>) -> Result<Descriptor, GraphError> {
    match op {
        Op::Source(source) => source::infer(source, inputs, declared),
        Op::Unary(unary) => unary::infer(*unary, inputs),
        Op::Binary(binary) => binary::infer(*binary, inputs),
        Op::Select => infer_select(inputs),
        Op::Reduce(reduce) => reduce::infer(reduce, inputs),
        Op::Movement(movement) => movement::infer(movement, inputs),
        Op::Contract(contract) => contract::infer(*contract, inputs),
        Op::Convolution(convolution) => convolution::infer(convolution, inputs),
        Op::Index(index) => index::infer(*index, inputs),
    }
}

/// Returns `value` converted to `dtype`: an integer becomes a float, and a whole float becomes an integer if it fits.
///
/// # Errors
/// Returns `ScalarRange` for a fraction, a NaN or a number out of range, if `dtype` is an integer type.
pub(crate) fn coerce_scalar(op: &'static str, value: Scalar, dtype: DType) -> Result<Scalar, GraphError> {
    let scalar = match value {
        Scalar::Int(value) if dtype.is_float() => Scalar::Float(value as f64),
        Scalar::Float(value) if !dtype.is_float() && value == value.trunc() && value.abs() < 1e30 => {
            Scalar::Int(value as i128)
        }
        Scalar::Int(_) | Scalar::Float(_) => value,
    };
    check_scalar(op, scalar, dtype)?;
    Ok(scalar)
}

/// Checks that `value` is of `dtype`'s kind and, for integers, in its range. Floats are rounded where they are used.
fn check_scalar(op: &'static str, value: Scalar, dtype: DType) -> Result<(), GraphError> {
    let fits = match (value, dtype) {
        (Scalar::Float(_), dtype) => dtype.is_float(),
        (Scalar::Int(_), DType::F32 | DType::F16) => false,
        (Scalar::Int(value), dtype) => integer_range(dtype).contains(&value),
    };
    if fits { Ok(()) } else { Err(GraphError::ScalarRange { op, value, dtype }) }
}

/// Returns the range of an integer type. Not called for float types.
fn integer_range(dtype: DType) -> std::ops::RangeInclusive<i128> {
    match dtype {
        DType::I64 => i64::MIN.into()..=i64::MAX.into(),
        DType::U64 => 0..=u64::MAX.into(),
        DType::I32 => i32::MIN.into()..=i32::MAX.into(),
        DType::U32 => 0..=u32::MAX.into(),
        DType::I8 => i8::MIN.into()..=i8::MAX.into(),
        DType::U8 => 0..=u8::MAX.into(),
        DType::F32 | DType::F16 => i128::MIN..=i128::MAX,
    }
}

fn infer_select(inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = Op::Select.name();
    let [condition, a, b] = expect_operands(op, inputs)?;
    check_operand_types(op, "condition", OperandTypes::Boolean, condition)?;
    check_same_descriptor(op, a, b)?;
    check_same_shape(op, condition, a)?;
    Ok(a.clone())
}

/// Checks that there are exactly `N` operands.
fn expect_operands<'a, const N: usize>(
    op: &'static str,
    inputs: &[&'a Descriptor],
) -> Result<[&'a Descriptor; N], GraphError> {
    inputs.try_into().map_err(|_| GraphError::OperandCount { op, least: N, most: N, got: inputs.len() })
}

fn check_operand_types(
    op: &'static str,
    operand: &'static str,
    types: OperandTypes,
    descriptor: &Descriptor,
) -> Result<(), GraphError> {
    if types.contains(descriptor.dtype) {
        return Ok(());
    }
    Err(GraphError::DType { op, operand, expected: types.description(), got: descriptor.dtype })
}

fn check_float(op: &'static str, operand: &'static str, descriptor: &Descriptor) -> Result<(), GraphError> {
    check_operand_types(op, operand, OperandTypes::Float, descriptor)
}

fn check_same_dtype(op: &'static str, a: &Descriptor, b: &Descriptor) -> Result<(), GraphError> {
    if a.dtype == b.dtype {
        return Ok(());
    }
    Err(GraphError::DTypesDiffer { op, lhs: a.clone(), rhs: b.clone() })
}

fn check_same_shape(op: &'static str, a: &Descriptor, b: &Descriptor) -> Result<(), GraphError> {
    if a.shape == b.shape {
        return Ok(());
    }
    Err(GraphError::ShapesDiffer { op, lhs: a.clone(), rhs: b.clone() })
}

fn check_same_descriptor(op: &'static str, a: &Descriptor, b: &Descriptor) -> Result<(), GraphError> {
    check_same_dtype(op, a, b)?;
    check_same_shape(op, a, b)
}

fn check_rank(op: &'static str, operand: &'static str, descriptor: &Descriptor, rank: usize) -> Result<(), GraphError> {
    if descriptor.shape.rank() == rank {
        return Ok(());
    }
    Err(GraphError::Rank { op, operand, least: rank, most: rank, got: descriptor.clone() })
}

fn check_dimension(
    op: &'static str,
    operand: &'static str,
    descriptor: &Descriptor,
    axis: usize,
    expected: usize,
) -> Result<(), GraphError> {
    if descriptor.shape[axis] == expected {
        return Ok(());
    }
    Err(GraphError::Dimension { op, operand, axis, expected, got: descriptor.clone() })
}

fn check_axis(op: &'static str, descriptor: &Descriptor, axis: usize) -> Result<(), GraphError> {
    if axis < descriptor.shape.rank() {
        return Ok(());
    }
    Err(GraphError::AxisOutOfRange { op, axis, got: descriptor.clone() })
}

/// Checks that axes are sorted, distinct and in range.
fn check_axes(op: &'static str, descriptor: &Descriptor, axes: &[usize]) -> Result<(), GraphError> {
    for &each in axes {
        check_axis(op, descriptor, each)?;
    }
    if axes.windows(2).all(|pair| pair[0] < pair[1]) {
        return Ok(());
    }
    // All axes are in range, so a list of this length contains a duplicate. The error does not need the rest.
    let axes = axes.iter().copied().take(descriptor.shape.rank() + 1).collect();
    Err(GraphError::AxesUnsorted { op, axes })
}

fn check_attribute_count(
    op: &'static str,
    attribute: &'static str,
    expected: usize,
    got: usize,
) -> Result<(), GraphError> {
    if expected == got {
        return Ok(());
    }
    Err(GraphError::AttributeCount { op, attribute, expected, got })
}

/// Checks that an attribute is from `least` to [`ELEMENTS_MAX`].
fn check_attribute_range(
    op: &'static str,
    attribute: &'static str,
    least: usize,
    got: usize,
) -> Result<(), GraphError> {
    if (least..=ELEMENTS_MAX).contains(&got) {
        return Ok(());
    }
    Err(GraphError::AttributeRange { op, attribute, least, most: ELEMENTS_MAX, got })
}

fn new_descriptor(dtype: DType, dims: Vec<usize>) -> Result<Descriptor, GraphError> {
    Ok(Descriptor::new(dtype, Shape::new(dims)?))
}

#[cfg(test)]
mod tests;
