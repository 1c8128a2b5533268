//! Element types of tensors: the supported subset of WebNN's `MLOperandDataType`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The data type of a tensor's elements, little-endian in memory. Booleans are `U8`, 0 or 1 (WebNN's convention).
///
/// Source: W3C WebNN, `MLOperandDataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer; also the type of booleans.
    U8,
}

impl DType {
    /// Every data type, in declaration order.
    pub const ALL: [DType; 8] =
        [DType::F32, DType::F16, DType::I64, DType::U64, DType::I32, DType::U32, DType::I8, DType::U8];

    /// Returns the bytes of one element in host memory.
    pub const fn bytes(self) -> usize {
        match self {
            DType::I64 | DType::U64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 => 2,
            DType::I8 | DType::U8 => 1,
        }
    }

    /// Returns whether elements are floating-point numbers.
    pub const fn is_float(self) -> bool {
        match self {
            DType::F32 | DType::F16 => true,
            DType::I64 | DType::U64 | DType::I32 | DType::U32 | DType::I8 | DType::U8 => false,
        }
    }

    /// Returns whether elements are signed integers.
    pub const fn is_signed_integer(self) -> bool {
        match self {
            DType::I64 | DType::I32 | DType::I8 => true,
            DType::F32 | DType::F16 | DType::U64 | DType::U32 | DType::U8 => false,
        }
    }

    /// Returns WebNN's name of the type, as users see it: `float32`, `uint8`, ...
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "float32",
            DType::F16 => "float16",
            DType::I64 => "int64",
            DType::U64 => "uint64",
            DType::I32 => "int32",
            DType::U32 => "uint32",
            DType::I8 => "int8",
            DType::U8 => "uint8",
        }
    }

    /// Returns the type whose WebNN name is `name`, or `None` if there is no such type.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
