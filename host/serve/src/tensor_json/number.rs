//! Conversion of one JSON number to one element of a tensor.

use std::fmt;

use saggar_tensor::DType;
use saggar_tensor::interp::float16;

/// A JSON number. A boolean counts as 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum JsonNumber {
    Integer(i128),
    /// A number with a fraction or an exponent. Infinite if it is beyond the range of `f64`.
    Float(f64),
    /// The word `NaN`, `Infinity` or `-Infinity`, which JSON does not have but clients send.
    Nonfinite(f64),
}

/// The numbers that an element accepts beyond those that all protocols accept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberRules {
    /// Whether an integer can be written as a float: `3.0` or `3e0`.
    pub(crate) whole_floats: bool,
    /// Whether a number beyond the range of a float type is infinite. Otherwise it is refused.
    pub(crate) overflow_is_infinite: bool,
}

impl JsonNumber {
    /// Appends the number as a little-endian element of `dtype`. Appends nothing and returns false if the type cannot
    /// hold it: out of range, or a fraction for an integer type.
    pub(crate) fn push_element(self, dtype: DType, rules: NumberRules, bytes: &mut Vec<u8>) -> bool {
        match dtype {
            DType::F32 => {
                let element = self.to_f64() as f32;
                self.push_float(element.is_finite(), element.to_le_bytes(), rules, bytes)
            }
            DType::F16 => {
                let bits = float16::to_bits(self.to_f64());
                self.push_float(float16::from_bits(bits).is_finite(), bits.to_le_bytes(), rules, bytes)
            }
            DType::I64 => self.push_integer(rules, bytes, i64::to_le_bytes),
            DType::U64 => self.push_integer(rules, bytes, u64::to_le_bytes),
            DType::I32 => self.push_integer(rules, bytes, i32::to_le_bytes),
            DType::U32 => self.push_integer(rules, bytes, u32::to_le_bytes),
            DType::I8 => self.push_integer(rules, bytes, i8::to_le_bytes),
            DType::U8 => self.push_integer(rules, bytes, u8::to_le_bytes),
        }
    }

    /// Returns whether the number is beyond the range of `f64`.
    pub(crate) fn is_beyond_f64(self) -> bool {
        matches!(self, JsonNumber::Float(number) if number.is_infinite())
    }

    fn to_f64(self) -> f64 {
        match self {
            JsonNumber::Integer(number) => number as f64,
            JsonNumber::Float(number) | JsonNumber::Nonfinite(number) => number,
        }
    }

    fn push_float<const N: usize>(
        self,
        is_finite: bool,
        element: [u8; N],
        rules: NumberRules,
        bytes: &mut Vec<u8>,
    ) -> bool {
        let is_accepted = is_finite || rules.overflow_is_infinite || matches!(self, JsonNumber::Nonfinite(_));
        if is_accepted {
            bytes.extend_from_slice(&element);
        }
        is_accepted
    }

    fn push_integer<T: TryFrom<i128>, const N: usize>(
        self,
        rules: NumberRules,
        bytes: &mut Vec<u8>,
        to_bytes: fn(T) -> [u8; N],
    ) -> bool {
        let number = match self {
            JsonNumber::Integer(number) => number,
            // 2^64 and beyond exceeds every type, so a saturated cast is refused below.
            JsonNumber::Float(number) if rules.whole_floats && number.fract() == 0.0 => number as i128,
            JsonNumber::Float(_) | JsonNumber::Nonfinite(_) => return false,
        };
        let element = T::try_from(number).map(to_bytes);
        if let Ok(element) = &element {
            bytes.extend_from_slice(element);
        }
        element.is_ok()
    }
}

/// Writes the number as errors quote it. Integers of more than 64 bits are written as floats.
impl fmt::Display for JsonNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            JsonNumber::Integer(number) if i64::try_from(number).is_ok() || u64::try_from(number).is_ok() => {
                write!(f, "{number}")
            }
            JsonNumber::Integer(_) | JsonNumber::Float(_) => write!(f, "{:?}", self.to_f64()),
            JsonNumber::Nonfinite(number) => write!(f, "{number}"),
        }
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

    const RULES: NumberRules = NumberRules { whole_floats: true, overflow_is_infinite: false };

    #[test]
    fn each_dtype_accepts_exactly_its_range() {
        let accepts = |dtype: DType, number: JsonNumber| {
            let mut bytes = Vec::new();
            let is_accepted = number.push_element(dtype, RULES, &mut bytes);
            assert_eq!(bytes.len(), if is_accepted { dtype.bytes() } else { 0 });
            is_accepted
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
            assert!(accepts(dtype, JsonNumber::Integer(min)) && accepts(dtype, JsonNumber::Integer(max)), "{dtype}");
            assert!(
                !accepts(dtype, JsonNumber::Integer(min - 1)) && !accepts(dtype, JsonNumber::Integer(max + 1)),
                "{dtype}"
            );
            assert!(accepts(dtype, JsonNumber::Float(3.0)) && !accepts(dtype, JsonNumber::Float(3.5)), "{dtype}");
            assert!(!accepts(dtype, JsonNumber::Float(1e300)), "{dtype}");
        }
        assert!(accepts(DType::F32, JsonNumber::Float(3.4e38)) && !accepts(DType::F32, JsonNumber::Float(3.5e38)));
        assert!(accepts(DType::F16, JsonNumber::Float(65504.0)) && !accepts(DType::F16, JsonNumber::Float(65520.0)));
        assert!(accepts(DType::F16, JsonNumber::Float(65519.0)), "rounds to the largest");
        for dtype in [DType::F32, DType::F16] {
            assert!(
                accepts(dtype, JsonNumber::Nonfinite(f64::NAN)) && !accepts(dtype, JsonNumber::Float(f64::INFINITY))
            );
        }
        assert!(!accepts(DType::I64, JsonNumber::Nonfinite(f64::INFINITY)));
    }

    #[test]
    fn rules_decide_about_overflow_and_whole_floats() {
        let rules = NumberRules { whole_floats: false, overflow_is_infinite: true };
        let push = |number: f64, dtype: DType| {
            let mut bytes = Vec::new();
            JsonNumber::Float(number).push_element(dtype, rules, &mut bytes).then_some(bytes)
        };
        assert_eq!(push(1e39, DType::F32), Some(f32::INFINITY.to_le_bytes().to_vec()));
        assert_eq!(push(-1e39, DType::F16), Some(0xfc00_u16.to_le_bytes().to_vec()));
        assert_eq!(push(3.0, DType::I32), None);
    }
}
