//! Operators of one operand.

use saggar_tensor::DType;
use saggar_tensor::op::Unary;

/// `op` applied to the expression `a` of type `dtype`.
pub(super) fn unary(op: Unary, dtype: DType, a: &str) -> String {
    match op {
        Unary::Neg => narrow(dtype, format!("-{a}")),
        Unary::Abs => narrow(dtype, format!("abs({a})")),
        Unary::Sign if dtype == DType::F32 => format!("sign_nan({a})"),
        Unary::Sign => format!("sign({a})"),
        Unary::Exp => format!("exp_full({a})"),
        Unary::Log => format!("log_full({a})"),
        Unary::Sqrt => format!("sqrt({a})"),
        Unary::Reciprocal => format!("1.0 / {a}"),
        Unary::Sin => format!("trigonometric({a}, 0u)"),
        Unary::Cos => format!("trigonometric({a}, 1u)"),
        Unary::Tanh => format!("tanh_full({a})"),
        Unary::Erf => format!("erf_full({a})"),
        Unary::Floor => format!("floor({a})"),
        Unary::Ceil => format!("ceil({a})"),
        Unary::RoundEven => format!("round({a})"),
        Unary::LogicalNot => format!("select(0u, 1u, {a} == 0u)"),
        Unary::StopGradient => a.to_owned(),
        Unary::Cast(to) => cast(dtype, to, a),
    }
}

/// `a`, an expression of type `from`, as a `to`. Types that WGSL lacks are refused before this is called.
pub(super) fn cast(from: DType, to: DType, a: &str) -> String {
    if from == to {
        return a.to_owned();
    }
    let signed = |dtype: DType| dtype.is_signed_integer();
    match (from, to) {
        (DType::F32, DType::I8) => format!("to_i32({a}, -128.0, 127.0)"),
        (DType::F32, DType::U8) => format!("to_u32({a}, 255.0)"),
        (DType::F32, _) if signed(to) => format!("to_i32({a}, -2147483648.0, 2147483648.0)"),
        (DType::F32, _) => format!("to_u32({a}, 4294967296.0)"),
        (_, DType::F32) => format!("f32({a})"),
        _ if signed(from) == signed(to) => narrow(to, a.to_owned()),
        _ => {
            let word = if signed(to) { "i32" } else { "u32" };
            narrow(to, format!("bitcast<{word}>({a})"))
        }
    }
}

/// The low bits of the word `a` that an element of `dtype` has, with its sign; wider types are left alone.
pub(super) fn narrow(dtype: DType, a: String) -> String {
    match dtype {
        DType::U8 => format!("({a}) & 0xffu"),
        DType::I8 => format!("(({a}) << 24u) >> 24u"),
        DType::F32 | DType::F16 | DType::I64 | DType::U64 | DType::I32 | DType::U32 => a,
    }
}
