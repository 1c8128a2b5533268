//! Operators of two operands.

use saggar_tensor::DType;
use saggar_tensor::op::{Binary, Scalar};

use super::expression::immediate;
use super::unary::narrow;
use super::wide_integer::{WideIntegers, is_wide, sign};

/// `op` applied to the expressions `a` and `b`, both of type `dtype`.
pub(super) fn binary(wide: WideIntegers, op: Binary, dtype: DType, a: &str, b: &str) -> String {
    let truth = |condition: String| format!("select(0u, 1u, {condition})");
    let in_words = wide.in_words(dtype);
    match op {
        Binary::Add if in_words => format!("wide_add({a}, {b})"),
        Binary::Sub if in_words => format!("wide_subtract({a}, {b})"),
        Binary::Mul if in_words => format!("wide_multiply({a}, {b})"),
        Binary::Div if in_words => format!("wide_divide_{}({a}, {b})", sign(dtype)),
        Binary::Max if in_words => format!("select({a}, {b}, {})", less(wide, dtype, a, b)),
        Binary::Min if in_words => format!("select({b}, {a}, {})", less(wide, dtype, a, b)),
        Binary::Equal if in_words => truth(format!("all({a} == {b})")),
        Binary::Add => narrow(dtype, format!("{a} + {b}")),
        Binary::Sub => narrow(dtype, format!("{a} - {b}")),
        Binary::Mul => narrow(dtype, format!("{a} * {b}")),
        Binary::Div if dtype.is_float() => narrow(dtype, format!("{a} / {b}")),
        Binary::Div => {
            let [zero, one] = [0, 1].map(|number| immediate(wide, Scalar::Int(number), dtype));
            narrow(dtype, format!("select({a} / select({b}, {one}, {b} == {zero}), {zero}, {b} == {zero})"))
        }
        Binary::Pow => narrow(dtype, format!("pow_full({a}, {b})")),
        Binary::Max if dtype.is_float() => format!("max_nan({a}, {b})"),
        Binary::Max => format!("max({a}, {b})"),
        Binary::Min if dtype.is_float() => format!("min_nan({a}, {b})"),
        Binary::Min => format!("min({a}, {b})"),
        Binary::Equal => truth(format!("{a} == {b}")),
        Binary::Less => truth(less(wide, dtype, a, b)),
        // Not for floats: of NaN and another neither is less.
        Binary::LessOrEqual if is_wide(dtype) => truth(format!("!{}", less(wide, dtype, b, a))),
        Binary::LessOrEqual => truth(format!("{a} <= {b}")),
        Binary::LogicalAnd => truth(format!("{a} != 0u && {b} != 0u")),
        Binary::LogicalOr => truth(format!("{a} != 0u || {b} != 0u")),
        Binary::LogicalXor => truth(format!("({a} != 0u) != ({b} != 0u)")),
    }
}

/// Whether `a < b`. Of 64 bits, by halves.
pub(super) fn less(wide: WideIntegers, dtype: DType, a: &str, b: &str) -> String {
    match is_wide(dtype) {
        true if wide.in_words(dtype) => format!("wide_less_{}({a}, {b})", sign(dtype)),
        true if dtype.is_signed_integer() => format!("less_i64({a}, {b})"),
        true => format!("less_u64({a}, {b})"),
        false => format!("{a} < {b}"),
    }
}
