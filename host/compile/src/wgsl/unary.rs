//! Operators of one operand.

use saggar_tensor::DType;
use saggar_tensor::op::Unary;

use super::wide_integer::{self, WideIntegers, is_wide};

/// `op` applied to the expression `a` of type `dtype`.
pub(super) fn unary(wide: WideIntegers, op: Unary, dtype: DType, a: &str) -> String {
    let in_words = wide.in_words(dtype);
    match op {
        Unary::Neg if in_words => format!("wide_negate({a})"),
        Unary::Abs if in_words => format!("wide_absolute({a})"),
        Unary::Sign if in_words => format!("wide_sign({a})"),
        // Of a half-precision number these are half-precision numbers, as are its sign and its whole neighbours.
        Unary::Neg if dtype.is_float() => format!("-{a}"),
        Unary::Abs if dtype.is_float() => format!("abs({a})"),
        Unary::Neg => narrow(dtype, format!("-{a}")),
        Unary::Abs => narrow(dtype, format!("abs({a})")),
        Unary::Sign if dtype.is_float() => format!("sign_nan({a})"),
        Unary::Sign => format!("sign({a})"),
        Unary::Exp => narrow(dtype, format!("exp_full({a})")),
        Unary::Log => narrow(dtype, format!("log_full({a})")),
        Unary::Sqrt => narrow(dtype, format!("sqrt({a})")),
        Unary::Reciprocal => narrow(dtype, format!("1.0 / {a}")),
        Unary::Sin => narrow(dtype, format!("trigonometric({a}, 0u)")),
        Unary::Cos => narrow(dtype, format!("trigonometric({a}, 1u)")),
        Unary::Tanh => narrow(dtype, format!("tanh_full({a})")),
        Unary::Erf => narrow(dtype, format!("erf_full({a})")),
        Unary::Floor => format!("floor({a})"),
        Unary::Ceil => format!("ceil({a})"),
        Unary::RoundEven => format!("round({a})"),
        Unary::LogicalNot => format!("select(0u, 1u, {a} == 0u)"),
        Unary::StopGradient => a.to_owned(),
        Unary::Cast(to) => cast(wide, dtype, to, a),
    }
}

/// `a`, an expression of type `from`, as a `to`.
pub(super) fn cast(wide: WideIntegers, from: DType, to: DType, a: &str) -> String {
    if from == to {
        return a.to_owned();
    }
    if wide.in_words(to) {
        return wide_integer::from(from, to, a);
    }
    if wide.in_words(from) {
        return narrow(to, wide_integer::to(from, to, a));
    }
    match (to, from.is_float()) {
        (DType::F32 | DType::F16, true) => narrow(to, a.to_owned()),
        (DType::F32 | DType::F16, false) => narrow(to, format!("f32({a})")),
        (DType::I64, true) => format!("to_i64({a})"),
        (DType::U64, true) => format!("to_u64({a})"),
        (DType::I32, true) => format!("to_i32({a}, -2147483648.0, 2147483648.0)"),
        (DType::U32, true) => format!("to_u32({a}, 4294967296.0)"),
        (DType::I8, true) => format!("to_i32({a}, -128.0, 127.0)"),
        (DType::U8, true) => format!("to_u32({a}, 255.0)"),
        (DType::I64 | DType::U64 | DType::I32 | DType::U32 | DType::I8 | DType::U8, false) => integer(from, to, a),
    }
}

/// An integer as another integer type. Its width changes first, under its own sign, and then what its bits mean: what a
/// conversion that changes both does with the sign is not the same everywhere.
fn integer(from: DType, to: DType, a: &str) -> String {
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
    narrow(to, text)
}

/// `a` as an element of `dtype`: the low bits of a word that holds 8, with their sign; the nearest half-precision number;
/// types that fill their words are left alone.
pub(super) fn narrow(dtype: DType, a: String) -> String {
    match dtype {
        DType::U8 => format!("({a}) & 0xffu"),
        DType::I8 => format!("(({a}) << 24u) >> 24u"),
        DType::F16 => format!("to_half({a})"),
        DType::F32 | DType::I64 | DType::U64 | DType::I32 | DType::U32 => a,
    }
}
