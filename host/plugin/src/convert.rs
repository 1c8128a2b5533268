//! Converts between the WIT package's types and the host's. Every `match` lists all cases, so that a new one must be
//! handled here.

#![deny(clippy::wildcard_enum_match_arm)]

use saggar_store::checkpoint::VariableKind;
use saggar_tensor::op::Scalar;
use saggar_tensor::{DType, Descriptor, Shape};

use crate::bindings::tensors::{DataType, ErrorCode};
use crate::bindings::{logging, tensors, variables};
use crate::guest_error_code::GuestErrorCode;
use crate::host_error::{HostError, ReturnedError};
use crate::initializers::VariableInitializer;
use crate::job_context::LogLevel;

/// Returns the host's data type.
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

/// Returns the WIT package's data type.
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

/// Converts sizes, axes and indices to the host's type.
pub(crate) fn to_usizes(values: &[u32]) -> Vec<usize> {
    values.iter().map(|&value| value as usize).collect()
}

/// Returns a shape, or an error if it exceeds the limits.
pub(crate) fn shape(dims: &[u32]) -> Result<Shape, HostError> {
    Ok(Shape::new(to_usizes(dims))?)
}

/// Returns a descriptor, or an error if its shape exceeds the limits.
pub(crate) fn descriptor(descriptor: &tensors::Descriptor) -> Result<Descriptor, HostError> {
    Ok(Descriptor::new(dtype(descriptor.data_type), shape(&descriptor.shape)?))
}

/// Returns a descriptor for the plugin. Every dimension fits in `u32`, because [`Shape`] limits the number of elements.
pub(crate) fn wit_descriptor(descriptor: &Descriptor) -> tensors::Descriptor {
    let dim = |&dim: &usize| u32::try_from(dim).unwrap_or(u32::MAX);
    tensors::Descriptor { data_type: data_type(descriptor.dtype), shape: descriptor.shape.iter().map(dim).collect() }
}

/// Converts a number to a scalar for a tensor of `dtype`.
///
/// # Errors
/// Invalid argument if `dtype` is an integer type and `value` is not a whole number.
pub(crate) fn scalar(dtype: DType, value: f64) -> Result<Scalar, HostError> {
    if dtype.is_float() {
        return Ok(Scalar::Float(value));
    }
    // Larger numbers are refused here; the builder's range check refuses the others that do not fit.
    if value.fract() == 0.0 && value.abs() < 2f64.powi(80) {
        return Ok(Scalar::Int(value as i128));
    }
    Err(HostError::invalid(format!("{dtype} takes whole numbers, not {value}")))
}

/// Returns the host's kind of a variable.
pub(crate) fn variable_kind(kind: variables::VariableKind) -> VariableKind {
    match kind {
        variables::VariableKind::Parameter => VariableKind::Parameter,
        variables::VariableKind::Statistic => VariableKind::Statistic,
        variables::VariableKind::Training => VariableKind::Training,
    }
}

/// Returns the host's log level.
pub(crate) fn log_level(level: logging::Level) -> LogLevel {
    match level {
        logging::Level::Debug => LogLevel::Debug,
        logging::Level::Info => LogLevel::Info,
        logging::Level::Warn => LogLevel::Warn,
        logging::Level::Error => LogLevel::Error,
    }
}

/// Returns an error for the plugin.
pub(crate) fn wit_error(error: ReturnedError) -> tensors::Error {
    let code = match error.code {
        GuestErrorCode::InvalidArgument => ErrorCode::InvalidArgument,
        GuestErrorCode::Unsupported => ErrorCode::Unsupported,
        GuestErrorCode::OutOfMemory => ErrorCode::OutOfMemory,
        GuestErrorCode::DeviceLost => ErrorCode::DeviceLost,
        GuestErrorCode::Cancelled => ErrorCode::Cancelled,
        GuestErrorCode::NotFound => ErrorCode::NotFound,
        GuestErrorCode::Internal => ErrorCode::Internal,
    };
    tensors::Error { code, message: error.message, place: error.place }
}

/// Returns an error that a plugin returned.
pub(crate) fn returned_error(error: tensors::Error) -> ReturnedError {
    let code = match error.code {
        ErrorCode::InvalidArgument => GuestErrorCode::InvalidArgument,
        ErrorCode::Unsupported => GuestErrorCode::Unsupported,
        ErrorCode::OutOfMemory => GuestErrorCode::OutOfMemory,
        ErrorCode::DeviceLost => GuestErrorCode::DeviceLost,
        ErrorCode::Cancelled => GuestErrorCode::Cancelled,
        ErrorCode::NotFound => GuestErrorCode::NotFound,
        ErrorCode::Internal => GuestErrorCode::Internal,
    };
    ReturnedError { code, message: error.message, place: error.place }
}

/// Returns the host's initializer of a variable.
pub(crate) fn initializer(initializer: variables::Initializer) -> VariableInitializer {
    match initializer {
        variables::Initializer::Zeros => VariableInitializer::Zeros,
        variables::Initializer::Constant(value) => VariableInitializer::Constant(value),
        variables::Initializer::Uniform((low, high)) => VariableInitializer::Uniform { low, high },
        variables::Initializer::Normal((mean, deviation)) => VariableInitializer::Normal { mean, deviation },
        variables::Initializer::Bytes(bytes) => VariableInitializer::Bytes(bytes),
    }
}
