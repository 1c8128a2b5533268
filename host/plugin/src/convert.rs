//! Between the WIT package's types and the host's. Every list of cases is complete: a new one must be answered here.

#![deny(clippy::wildcard_enum_match_arm)]

use saggar_store::checkpoint::VariableKind;
use saggar_tensor::op::Scalar;
use saggar_tensor::{DType, Descriptor, Shape};

use crate::bindings::tensors::{DataType, ErrorCode};
use crate::bindings::{logging, tensors, variables};
use crate::host_error::HostError;
use crate::train::LogLevel;

/// The host's name of a data type.
pub(crate) fn dtype(data_type: DataType) -> DType {
    match data_type {
        DataType::Float32 => DType::F32,
        DataType::Float16 => DType::F16,
        DataType::Int64 => DType::I64,
        DataType::Uint64 => DType::U64,
        DataType::Int32 => DType::I32,
        DataType::Uint32 => DType::U32,
        DataType::Int8 => DType::I8,
        DataType::Uint8 => DType::U8,
    }
}

/// The WIT package's name of a data type.
pub(crate) fn data_type(dtype: DType) -> DataType {
    match dtype {
        DType::F32 => DataType::Float32,
        DType::F16 => DataType::Float16,
        DType::I64 => DataType::Int64,
        DType::U64 => DataType::Uint64,
        DType::I32 => DataType::Int32,
        DType::U32 => DataType::Uint32,
        DType::I8 => DataType::Int8,
        DType::U8 => DataType::Uint8,
    }
}

/// Sizes, axes and indices as the host counts them.
pub(crate) fn to_usizes(values: &[u32]) -> Vec<usize> {
    values.iter().map(|&value| value as usize).collect()
}

/// A shape within limits.
pub(crate) fn shape(dims: &[u32]) -> Result<Shape, HostError> {
    Ok(Shape::new(to_usizes(dims))?)
}

/// A descriptor within limits.
pub(crate) fn descriptor(descriptor: &tensors::Descriptor) -> Result<Descriptor, HostError> {
    Ok(Descriptor::new(dtype(descriptor.data_type), shape(&descriptor.shape)?))
}

/// A descriptor for the plugin. A dimension always fits: `Shape` proves that the number of elements does.
pub(crate) fn wit_descriptor(descriptor: &Descriptor) -> tensors::Descriptor {
    let dim = |&dim: &usize| u32::try_from(dim).unwrap_or(u32::MAX);
    tensors::Descriptor { data_type: data_type(descriptor.dtype), shape: descriptor.shape.iter().map(dim).collect() }
}

/// The value that a whole number or a float stands for in a tensor of `dtype`.
///
/// # Errors
/// An integer type takes whole numbers only.
pub(crate) fn scalar(dtype: DType, value: f64) -> Result<Scalar, HostError> {
    if dtype.is_float() {
        return Ok(Scalar::Float(value));
    }
    // 2^80 is past every integer type, so what is cut off here is refused by the builder's range check.
    if value.fract() == 0.0 && value.abs() < 2f64.powi(80) {
        return Ok(Scalar::Int(value as i128));
    }
    Err(HostError::invalid(format!("{dtype} takes whole numbers, not {value}")))
}

/// What a variable is for.
pub(crate) fn variable_kind(kind: variables::VariableKind) -> VariableKind {
    match kind {
        variables::VariableKind::Parameter => VariableKind::Parameter,
        variables::VariableKind::Statistic => VariableKind::Statistic,
        variables::VariableKind::Training => VariableKind::Training,
    }
}

/// How much a line matters.
pub(crate) fn log_level(level: logging::Level) -> LogLevel {
    match level {
        logging::Level::Debug => LogLevel::Debug,
        logging::Level::Info => LogLevel::Info,
        logging::Level::Warn => LogLevel::Warn,
        logging::Level::Error => LogLevel::Error,
    }
}

/// Every name that [`code_name`] gives.
pub(crate) const CODE_NAMES: [&str; 7] = [
    code_name(ErrorCode::InvalidArgument),
    code_name(ErrorCode::Unsupported),
    code_name(ErrorCode::OutOfMemory),
    code_name(ErrorCode::DeviceLost),
    code_name(ErrorCode::Cancelled),
    code_name(ErrorCode::NotFound),
    code_name(ErrorCode::Internal),
];

/// The WIT name of an error's code.
pub(crate) const fn code_name(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::InvalidArgument => "invalid-argument",
        ErrorCode::Unsupported => "unsupported",
        ErrorCode::OutOfMemory => "out-of-memory",
        ErrorCode::DeviceLost => "device-lost",
        ErrorCode::Cancelled => "cancelled",
        ErrorCode::NotFound => "not-found",
        ErrorCode::Internal => "internal",
    }
}
