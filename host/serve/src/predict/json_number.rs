//! Conversion of one JSON number to one element of a tensor.

use saggar_tensor::DType;
use saggar_tensor::interp::float16;

/// A JSON number. A boolean counts as 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum JsonNumber {
    Integer(i128),
    Float(f64),
}

impl JsonNumber {
    /// Appends the number as a little-endian element of `dtype`. Returns false if the type cannot hold it: out of
    /// range, or a fraction for an integer type. An integer can be written as a float: `3.0`.
    pub(crate) fn push_element(self, dtype: DType, bytes: &mut Vec<u8>) -> bool {
        match dtype {
            DType::F32 => {
                let element = self.to_f64() as f32;
                bytes.extend(element.to_le_bytes());
                element.is_finite()
            }
            DType::F16 => {
                let bits = float16::to_bits(self.to_f64());
                bytes.extend(bits.to_le_bytes());
                float16::from_bits(bits).is_finite()
            }
            DType::I64 => self.push_integer(bytes, i64::to_le_bytes),
            DType::U64 => self.push_integer(bytes, u64::to_le_bytes),
            DType::I32 => self.push_integer(bytes, i32::to_le_bytes),
            DType::U32 => self.push_integer(bytes, u32::to_le_bytes),
            DType::I8 => self.push_integer(bytes, i8::to_le_bytes),
            DType::U8 => self.push_integer(bytes, u8::to_le_bytes),
        }
    }

    fn to_f64(self) -> f64 {
        match self {
            JsonNumber::Integer(number) => number as f64,
            JsonNumber::Float(number) => number,
        }
    }

    fn push_integer<T: TryFrom<i128>, const N: usize>(self, bytes: &mut Vec<u8>, to_bytes: fn(T) -> [u8; N]) -> bool {
        let number = match self {
            JsonNumber::Integer(number) => number,
            // 2^64 and beyond exceeds every type, so a saturated cast is refused below.
            JsonNumber::Float(number) if number.fract() == 0.0 => number as i128,
            JsonNumber::Float(_) => return false,
        };
        T::try_from(number).is_ok_and(|element| {
            bytes.extend(to_bytes(element));
            true
        })
    }
}

/// Describes the valid range of an element of this type.
pub(crate) fn expected_range(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "a number within ±3.4e38",
        DType::F16 => "a number within ±65504",
        DType::I64 => "a whole number within ±2^63",
        DType::U64 => "a whole number from 0 to 2^64 - 1",
        DType::I32 => "a whole number within ±2^31",
        DType::U32 => "a whole number from 0 to 2^32 - 1",
        DType::I8 => "a whole number from -128 to 127",
        DType::U8 => "a whole number from 0 to 255",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dtype_accepts_exactly_its_range() {
        let takes = |dtype: DType, number: JsonNumber| {
            let mut bytes = Vec::new();
            let taken = number.push_element(dtype, &mut bytes);
            assert!(!taken || bytes.len() == dtype.bytes());
            taken
        };
        let whole = [
            (DType::I64, i128::from(i64::MIN), i128::from(i64::MAX)),
            (DType::U64, 0, i128::from(u64::MAX)),
            (DType::I32, i128::from(i32::MIN), i128::from(i32::MAX)),
            (DType::U32, 0, i128::from(u32::MAX)),
            (DType::I8, -128, 127),
            (DType::U8, 0, 255),
        ];
        for (dtype, min, max) in whole {
            assert!(takes(dtype, JsonNumber::Integer(min)) && takes(dtype, JsonNumber::Integer(max)), "{dtype}");
            assert!(
                !takes(dtype, JsonNumber::Integer(min - 1)) && !takes(dtype, JsonNumber::Integer(max + 1)),
                "{dtype}"
            );
            assert!(takes(dtype, JsonNumber::Float(3.0)) && !takes(dtype, JsonNumber::Float(3.5)), "{dtype}");
            assert!(!takes(dtype, JsonNumber::Float(1e300)), "{dtype}");
        }
        assert!(takes(DType::F32, JsonNumber::Float(3.4e38)) && !takes(DType::F32, JsonNumber::Float(3.5e38)));
        assert!(takes(DType::F16, JsonNumber::Float(65504.0)) && !takes(DType::F16, JsonNumber::Float(65520.0)));
        assert!(takes(DType::F16, JsonNumber::Float(65519.0)), "rounds to the largest");
    }
}
