//! WGSL for operators of two operands.

use saggar_tensor::DType;
use saggar_tensor::op::{BinaryOp, Scalar};

use super::literal::scalar_literal;
use super::unary::narrow_to_dtype;
use super::wide_integer::{WideIntegers, is_wide, sign_suffix};

/// Returns `op` applied to the expressions `a` and `b`, both of type `dtype`.
pub(super) fn binary_expression(wide: WideIntegers, op: BinaryOp, dtype: DType, a: &str, b: &str) -> String {
    let truth = |condition: String| format!("select(0u, 1u, {condition})");
    let in_words = wide.is_emulated(dtype);
    match op {
        BinaryOp::Add if in_words => format!("wide_add({a}, {b})"),
        BinaryOp::Sub if in_words => format!("wide_subtract({a}, {b})"),
        BinaryOp::Mul if in_words => format!("wide_multiply({a}, {b})"),
        BinaryOp::Div if in_words => format!("wide_divide_{}({a}, {b})", sign_suffix(dtype)),
        BinaryOp::Max if in_words => format!("select({a}, {b}, {})", less_expression(wide, dtype, a, b)),
        BinaryOp::Min if in_words => format!("select({b}, {a}, {})", less_expression(wide, dtype, a, b)),
        BinaryOp::Equal if in_words => truth(format!("all({a} == {b})")),
        BinaryOp::Add => narrow_to_dtype(dtype, format!("{a} + {b}")),
        BinaryOp::Sub => narrow_to_dtype(dtype, format!("{a} - {b}")),
        BinaryOp::Mul => narrow_to_dtype(dtype, format!("{a} * {b}")),
        BinaryOp::Div if dtype.is_float() => narrow_to_dtype(dtype, format!("{a} / {b}")),
        BinaryOp::Div => {
            let [zero, one] = [0, 1].map(|number| scalar_literal(wide, Scalar::Int(number), dtype));
            narrow_to_dtype(dtype, format!("select({a} / select({b}, {one}, {b} == {zero}), {zero}, {b} == {zero})"))
        }
        BinaryOp::Pow => narrow_to_dtype(dtype, format!("pow_full({a}, {b})")),
        BinaryOp::Max if dtype.is_float() => format!("max_nan({a}, {b})"),
        BinaryOp::Max => format!("max({a}, {b})"),
        BinaryOp::Min if dtype.is_float() => format!("min_nan({a}, {b})"),
        BinaryOp::Min => format!("min({a}, {b})"),
        BinaryOp::Equal => truth(format!("{a} == {b}")),
        BinaryOp::Less => truth(less_expression(wide, dtype, a, b)),
        // Not for floats: if an operand is NaN, `a <= b` is false but `!(b < a)` is true.
        BinaryOp::LessOrEqual if is_wide(dtype) => truth(format!("!{}", less_expression(wide, dtype, b, a))),
        BinaryOp::LessOrEqual => truth(format!("{a} <= {b}")),
        BinaryOp::LogicalAnd => truth(format!("{a} != 0u && {b} != 0u")),
        BinaryOp::LogicalOr => truth(format!("{a} != 0u || {b} != 0u")),
        BinaryOp::LogicalXor => truth(format!("({a} != 0u) != ({b} != 0u)")),
    }
}

/// Returns the expression `a < b`. 64-bit integers are compared by halves.
pub(super) fn less_expression(wide: WideIntegers, dtype: DType, a: &str, b: &str) -> String {
    match is_wide(dtype) {
        true if wide.is_emulated(dtype) => format!("wide_less_{}({a}, {b})", sign_suffix(dtype)),
        true if dtype.is_signed_integer() => format!("less_i64({a}, {b})"),
        true => format!("less_u64({a}, {b})"),
        false => format!("{a} < {b}"),
    }
}
