//! One number of JSON as one element of a tensor.

use saggar_tensor::DType;
use saggar_tensor::interp::float16;

/// A number as JSON writes it. A truth value counts as 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Whole(i128),
    Float(f64),
}

impl Number {
    /// Appends the number as an element of `dtype`, little-endian. False where the type cannot hold it: out of its
    /// range, or a fraction for a type of whole numbers. A whole number may be written as a float: `3.0`.
    pub(crate) fn push(self, dtype: DType, bytes: &mut Vec<u8>) -> bool {
        match dtype {
            DType::F32 => {
                let element = self.float() as f32;
                bytes.extend(element.to_le_bytes());
                element.is_finite()
            }
            DType::F16 => {
                let bits = float16::to_bits(self.float());
                bytes.extend(bits.to_le_bytes());
                float16::from_bits(bits).is_finite()
            }
            DType::I64 => self.whole(bytes, i64::to_le_bytes),
            DType::U64 => self.whole(bytes, u64::to_le_bytes),
            DType::I32 => self.whole(bytes, i32::to_le_bytes),
            DType::U32 => self.whole(bytes, u32::to_le_bytes),
            DType::I8 => self.whole(bytes, i8::to_le_bytes),
            DType::U8 => self.whole(bytes, u8::to_le_bytes),
        }
    }

    fn float(self) -> f64 {
        match self {
            Number::Whole(number) => number as f64,
            Number::Float(number) => number,
        }
    }

    fn whole<T: TryFrom<i128>, const N: usize>(self, bytes: &mut Vec<u8>, to_bytes: fn(T) -> [u8; N]) -> bool {
        let number = match self {
            Number::Whole(number) => number,
            // 2^64 and beyond is past every type, so the cast's saturation is refused below.
            Number::Float(number) if number.fract() == 0.0 => number as i128,
            Number::Float(_) => return false,
        };
        T::try_from(number).is_ok_and(|element| {
            bytes.extend(to_bytes(element));
            true
        })
    }
}

/// What an element of this type may be, in words.
pub(crate) fn range(dtype: DType) -> &'static str {
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
    fn each_type_takes_its_range_and_no_more() {
        let takes = |dtype: DType, number: Number| {
            let mut bytes = Vec::new();
            let taken = number.push(dtype, &mut bytes);
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
            assert!(takes(dtype, Number::Whole(min)) && takes(dtype, Number::Whole(max)), "{dtype}");
            assert!(!takes(dtype, Number::Whole(min - 1)) && !takes(dtype, Number::Whole(max + 1)), "{dtype}");
            assert!(takes(dtype, Number::Float(3.0)) && !takes(dtype, Number::Float(3.5)), "{dtype}");
            assert!(!takes(dtype, Number::Float(1e300)), "{dtype}");
        }
        assert!(takes(DType::F32, Number::Float(3.4e38)) && !takes(DType::F32, Number::Float(3.5e38)));
        assert!(takes(DType::F16, Number::Float(65504.0)) && !takes(DType::F16, Number::Float(65520.0)));
        assert!(takes(DType::F16, Number::Float(65519.0)), "rounds to the largest");
    }
}
