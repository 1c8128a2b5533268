//! Operators of two operands.

use saggar_tensor::DType;
use saggar_tensor::op::{Binary, Scalar};

use super::expression::immediate;
use super::unary::{narrow, wide};

/// `op` applied to the expressions `a` and `b`, both of type `dtype`.
pub(super) fn binary(op: Binary, dtype: DType, a: &str, b: &str) -> String {
    let truth = |condition: String| format!("select(0u, 1u, {condition})");
    match op {
        Binary::Add => narrow(dtype, format!("{a} + {b}")),
        Binary::Sub => narrow(dtype, format!("{a} - {b}")),
        Binary::Mul => narrow(dtype, format!("{a} * {b}")),
        Binary::Div if dtype.is_float() => narrow(dtype, format!("{a} / {b}")),
        Binary::Div => {
            let [zero, one] = [0, 1].map(|number| immediate(Scalar::Int(number), dtype));
            narrow(dtype, format!("select({a} / select({b}, {one}, {b} == {zero}), {zero}, {b} == {zero})"))
        }
        Binary::Pow => narrow(dtype, format!("pow_full({a}, {b})")),
        Binary::Max if dtype.is_float() => format!("max_nan({a}, {b})"),
        Binary::Max => format!("max({a}, {b})"),
        Binary::Min if dtype.is_float() => format!("min_nan({a}, {b})"),
        Binary::Min => format!("min({a}, {b})"),
        Binary::Equal => truth(format!("{a} == {b}")),
        Binary::Less => truth(less(dtype, a, b)),
        // Not for floats: of NaN and another neither is less.
        Binary::LessOrEqual if wide(dtype) => truth(format!("!{}", less(dtype, b, a))),
        Binary::LessOrEqual => truth(format!("{a} <= {b}")),
        Binary::LogicalAnd => truth(format!("{a} != 0u && {b} != 0u")),
        Binary::LogicalOr => truth(format!("{a} != 0u || {b} != 0u")),
        Binary::LogicalXor => truth(format!("({a} != 0u) != ({b} != 0u)")),
    }
}

/// Whether `a < b`. Of 64 bits, by halves.
fn less(dtype: DType, a: &str, b: &str) -> String {
    match wide(dtype) {
        true if dtype.is_signed_integer() => format!("less_i64({a}, {b})"),
        true => format!("less_u64({a}, {b})"),
        false => format!("{a} < {b}"),
    }
}
