//! WGSL for operators of one operand.

use saggar_tensor::DType;
use saggar_tensor::op::UnaryOp;

use super::wide_integer::{self, WideIntegers, is_wide};

/// Returns `op` applied to the expression `a` of type `dtype`.
pub(super) fn unary_expression(wide: WideIntegers, op: UnaryOp, dtype: DType, a: &str) -> String {
    let in_words = wide.is_emulated(dtype);
    match op {
        UnaryOp::Neg if in_words => format!("wide_negate({a})"),
        UnaryOp::Abs if in_words => format!("wide_absolute({a})"),
        UnaryOp::Sign if in_words => format!("wide_sign({a})"),
        // For a half-precision operand, negation, absolute value, sign and rounding to integers are exact in half
        // precision.
        UnaryOp::Neg if dtype.is_float() => format!("-{a}"),
        UnaryOp::Abs if dtype.is_float() => format!("abs({a})"),
        UnaryOp::Neg => narrow_to_dtype(dtype, format!("-{a}")),
        UnaryOp::Abs => narrow_to_dtype(dtype, format!("abs({a})")),
        UnaryOp::Sign if dtype.is_float() => format!("sign_nan({a})"),
        UnaryOp::Sign => format!("sign({a})"),
        UnaryOp::Exp => narrow_to_dtype(dtype, format!("exp_full({a})")),
        UnaryOp::Log => narrow_to_dtype(dtype, format!("log_full({a})")),
        UnaryOp::Sqrt => narrow_to_dtype(dtype, format!("sqrt({a})")),
        UnaryOp::Reciprocal => narrow_to_dtype(dtype, format!("1.0 / {a}")),
        UnaryOp::Sin => narrow_to_dtype(dtype, format!("trigonometric({a}, 0u)")),
        UnaryOp::Cos => narrow_to_dtype(dtype, format!("trigonometric({a}, 1u)")),
        UnaryOp::Tanh => narrow_to_dtype(dtype, format!("tanh_full({a})")),
        UnaryOp::Erf => narrow_to_dtype(dtype, format!("erf_full({a})")),
        UnaryOp::Floor => format!("floor({a})"),
        UnaryOp::Ceil => format!("ceil({a})"),
        UnaryOp::RoundEven => format!("round({a})"),
        UnaryOp::LogicalNot => format!("select(0u, 1u, {a} == 0u)"),
        UnaryOp::StopGradient => a.to_owned(),
        UnaryOp::Cast(to) => cast_expression(wide, dtype, to, a),
    }
}

/// Returns the expression `a` of type `from`, converted to type `to`.
pub(super) fn cast_expression(wide: WideIntegers, from: DType, to: DType, a: &str) -> String {
    if from == to {
        return a.to_owned();
    }
    if wide.is_emulated(to) {
        return wide_integer::to_words(from, to, a);
    }
    if wide.is_emulated(from) {
        return narrow_to_dtype(to, wide_integer::from_words(from, to, a));
    }
    match (to, from.is_float()) {
        (DType::F32 | DType::F16, true) => narrow_to_dtype(to, a.to_owned()),
        (DType::F32 | DType::F16, false) => narrow_to_dtype(to, format!("f32({a})")),
        (DType::I64, true) => format!("to_i64({a})"),
        (DType::U64, true) => format!("to_u64({a})"),
        (DType::I32, true) => format!("to_i32({a}, -2147483648.0, 2147483648.0)"),
        (DType::U32, true) => format!("to_u32({a}, 4294967296.0)"),
        (DType::I8, true) => format!("to_i32({a}, -128.0, 127.0)"),
        (DType::U8, true) => format!("to_u32({a}, 255.0)"),
        (DType::I64 | DType::U64 | DType::I32 | DType::U32 | DType::I8 | DType::U8, false) => integer_cast(from, to, a),
    }
}

/// Returns an integer converted to another integer type. The width changes first, with the original sign, then the
/// interpretation of the bits, because drivers differ in how a conversion that changes both treats the sign.
fn integer_cast(from: DType, to: DType, a: &str) -> String {
    let signed = |dtype: DType| dtype.is_signed_integer();
    let word = |signed: bool| match (signed, is_wide(to)) {
        (true, true) => "i64",
        (true, false) => "i32",
        (false, true) => "u64",
        (false, false) => "u32",
    };
    let mut text = a.to_owned();
    if is_wide(from) != is_wide(to) {
        text = format!("{}({text})", word(signed(from)));
    }
    if signed(from) != signed(to) {
        text = format!("bitcast<{}>({text})", word(signed(to)));
    }
    narrow_to_dtype(to, text)
}

/// Returns `a` as an element of `dtype`: the low bits of a word with their sign for 8-bit types, or the nearest
/// half-precision number. Types that fill their words are unchanged.
pub(super) fn narrow_to_dtype(dtype: DType, a: String) -> String {
    match dtype {
        DType::U8 => format!("({a}) & 0xffu"),
        DType::I8 => format!("(({a}) << 24u) >> 24u"),
        DType::F16 => format!("to_half({a})"),
        DType::F32 | DType::I64 | DType::U64 | DType::I32 | DType::U32 => a,
    }
}
