//! Element types: ONNX's numbers for them and the host's equivalents.

use saggar_plugin::DataType;

use crate::error::{Error, Result};

/// An element type that the plugin supports.
///
/// `Bool` is `uint8` on the host. `Float64` occurs only in constants, which are converted before they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ElementType {
    Float32,
    Float16,
    Float64,
    Int64,
    Uint64,
    Int32,
    Uint32,
    Int8,
    Uint8,
    Bool,
}

impl ElementType {
    /// Returns the type with this number in `TensorProto.DataType`.
    ///
    /// # Errors
    /// Returns `Unsupported` with the type's name; `Invalid` if there is no such type.
    pub fn from_number(number: i32) -> Result<Self> {
        Ok(match number {
            1 => Self::Float32,
            2 => Self::Uint8,
            3 => Self::Int8,
            6 => Self::Int32,
            7 => Self::Int64,
            9 => Self::Bool,
            10 => Self::Float16,
            11 => Self::Float64,
            12 => Self::Uint32,
            13 => Self::Uint64,
            other => {
                let name = match other {
                    4 => "uint16",
                    5 => "int16",
                    8 => "string",
                    14 => "complex64",
                    15 => "complex128",
                    16 => "bfloat16",
                    17 => "float8e4m3fn",
                    18 => "float8e4m3fnuz",
                    19 => "float8e5m2",
                    20 => "float8e5m2fnuz",
                    21 => "uint4",
                    22 => "int4",
                    23 => "float4e2m1",
                    24 => "float8e8m0",
                    25 => "uint2",
                    26 => "int2",
                    _ => return Err(Error::invalid(format!("there is no element type {other}"))),
                };
                return Err(Error::unsupported(format!("elements of type {name}")));
            }
        })
    }

    /// Returns ONNX's number of the type.
    pub fn number(self) -> i32 {
        match self {
            Self::Float32 => 1,
            Self::Uint8 => 2,
            Self::Int8 => 3,
            Self::Int32 => 6,
            Self::Int64 => 7,
            Self::Bool => 9,
            Self::Float16 => 10,
            Self::Float64 => 11,
            Self::Uint32 => 12,
            Self::Uint64 => 13,
        }
    }

    /// Returns the host's type.
    ///
    /// # Errors
    /// Returns `Unsupported` for `float64`.
    pub fn data_type(self) -> Result<DataType> {
        Ok(match self {
            Self::Float32 => DataType::Float32,
            Self::Float16 => DataType::Float16,
            Self::Int64 => DataType::Int64,
            Self::Uint64 => DataType::Uint64,
            Self::Int32 => DataType::Int32,
            Self::Uint32 => DataType::Uint32,
            Self::Int8 => DataType::Int8,
            Self::Uint8 | Self::Bool => DataType::Uint8,
            Self::Float64 => return Err(Error::unsupported("elements of type float64")),
        })
    }

    /// Returns the ONNX type that corresponds to the host's type. `uint8` gives `uint8`, not `bool`.
    pub fn from_data_type(data_type: DataType) -> Self {
        match data_type {
            DataType::Float32 => Self::Float32,
            DataType::Float16 => Self::Float16,
            DataType::Int64 => Self::Int64,
            DataType::Uint64 => Self::Uint64,
            DataType::Int32 => Self::Int32,
            DataType::Uint32 => Self::Uint32,
            DataType::Int8 => Self::Int8,
            DataType::Uint8 => Self::Uint8,
        }
    }

    /// Returns the size of one element in a file, in bytes.
    pub fn element_bytes(self) -> usize {
        match self {
            Self::Float64 | Self::Int64 | Self::Uint64 => 8,
            Self::Float32 | Self::Int32 | Self::Uint32 => 4,
            Self::Float16 => 2,
            Self::Int8 | Self::Uint8 | Self::Bool => 1,
        }
    }

    /// Returns whether the type is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float32 | Self::Float16 | Self::Float64)
    }

    /// Returns whether the type is unsigned.
    pub fn is_unsigned(self) -> bool {
        matches!(self, Self::Uint64 | Self::Uint32 | Self::Uint8 | Self::Bool)
    }

    /// Returns the smallest and the largest finite number of the type, as floats.
    pub fn range(self) -> [f64; 2] {
        match self {
            Self::Float32 => [f64::from(f32::MIN), f64::from(f32::MAX)],
            Self::Float16 => [-65504.0, 65504.0],
            Self::Float64 => [f64::MIN, f64::MAX],
            Self::Int64 => [i64::MIN as f64, i64::MAX as f64],
            Self::Uint64 => [0.0, u64::MAX as f64],
            Self::Int32 => [f64::from(i32::MIN), f64::from(i32::MAX)],
            Self::Uint32 => [0.0, f64::from(u32::MAX)],
            Self::Int8 => [-128.0, 127.0],
            Self::Uint8 => [0.0, 255.0],
            Self::Bool => [0.0, 1.0],
        }
    }
}

/// Converts the bits of a `float16` to `f64`. Source: IEEE 754 binary16.
pub fn f16_bits_to_f64(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from((bits >> 10) & 0x1f);
    let fraction = f64::from(bits & 0x3ff);
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

/// Returns the bits of the nearest `float16`, ties to even.
pub fn f64_to_f16_bits(value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = value.abs();
    if magnitude.is_nan() {
        return 0x7e00;
    }
    if magnitude >= 65520.0 {
        return sign | 0x7c00;
    }
    if magnitude == 0.0 {
        return sign;
    }
    // The exponent of the unit in the last place. Below 2^-14 it no longer falls.
    let exponent = (((magnitude.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(-14);
    let units = (magnitude * 2f64.powi(10 - exponent)).round_ties_even();
    // Rounding up to 2048 units carries into the exponent automatically.
    sign | (((exponent + 14) as u16) << 10).wrapping_add(units as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float16_values_round_trip() {
        for bits in (0..=u16::MAX).filter(|bits| bits & 0x7c00 != 0x7c00 || bits & 0x3ff == 0) {
            assert_eq!(f64_to_f16_bits(f16_bits_to_f64(bits)), bits, "{bits:x}");
        }
        assert_eq!(f64_to_f16_bits(1.0 + 2f64.powi(-11)), 0x3c00);
        assert_eq!(f64_to_f16_bits(65519.9), 0x7bff);
        assert!(f16_bits_to_f64(f64_to_f16_bits(f64::NAN)).is_nan());
    }

    #[test]
    fn an_unknown_element_type_is_named_in_the_error() {
        assert_eq!(ElementType::from_number(16).unwrap_err().to_string(), "not supported: elements of type bfloat16");
        assert!(ElementType::from_number(99).unwrap_err().to_string().contains("no element type 99"));
    }
}
