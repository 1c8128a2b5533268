//! WGSL literals.

use saggar_tensor::DType;
use saggar_tensor::interp::float16;
use saggar_tensor::op::Scalar;

use super::wide_integer::{self, WideIntegers};

/// Returns a constant of type `dtype`. Floats that a WGSL literal cannot express are built from their bits.
pub(super) fn scalar_literal(wide: WideIntegers, value: Scalar, dtype: DType) -> String {
    if wide.is_emulated(dtype) {
        return wide_integer::word_literal(integer_value(value));
    }
    match dtype {
        DType::F32 => float_literal(value.as_f64() as f32),
        DType::F16 => float_literal(float16::round(value.as_f64()) as f32),
        DType::I32 | DType::I8 => {
            let value = integer_value(value);
            if value == i128::from(i32::MIN) { "i32(-2147483648)".to_owned() } else { format!("{value}i") }
        }
        DType::I64 => {
            let value = integer_value(value);
            // A literal has no sign, and no signed literal reaches 2^63.
            if value == i128::from(i64::MIN) { "i64(9223372036854775808lu)".to_owned() } else { format!("{value}li") }
        }
        DType::U32 | DType::U8 => format!("{}u", integer_value(value)),
        DType::U64 => format!("{}lu", integer_value(value)),
    }
}

fn float_literal(value: f32) -> String {
    if value.is_normal() || value.to_bits() == 0 {
        format!("{value:?}f")
    } else {
        format!("float_bits({:#010x}u)", value.to_bits())
    }
}

fn integer_value(value: Scalar) -> i128 {
    match value {
        Scalar::Int(value) => value,
        // Inference allows only integers here; the cast makes the match total.
        Scalar::Float(value) => value as i128,
    }
}
