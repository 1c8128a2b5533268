//! Rules of elementwise operators: arithmetic, comparison, logic, limits and bits.

use super::{RuleResult, single_result};
use crate::backend::{ElementwiseBinary, ElementwiseUnary};
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::{GraphValue, normalize_axis};

/// Builds operators with one operand that the host has, or that are trivial for integers.
pub(super) fn unary(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let unsigned = x.elem().is_unsigned();
    let op = match call.op {
        "Abs" if unsigned => return single_result(Ok(x.clone())),
        "Sign" if unsigned => {
            let most = g.scalar_like(x, 1.0);
            return single_result(g.min(x, &most));
        }
        "Ceil" | "Floor" | "Round" if !x.elem().is_float() => return single_result(Ok(x.clone())),
        "Abs" => ElementwiseUnary::Abs,
        "Neg" => ElementwiseUnary::Neg,
        "Sign" => ElementwiseUnary::Sign,
        "Ceil" => ElementwiseUnary::Ceil,
        "Floor" => ElementwiseUnary::Floor,
        "Round" => ElementwiseUnary::RoundEven,
        "Exp" => ElementwiseUnary::Exp,
        "Log" => ElementwiseUnary::Log,
        "Sqrt" => ElementwiseUnary::Sqrt,
        "Reciprocal" => ElementwiseUnary::Reciprocal,
        "Sin" => ElementwiseUnary::Sin,
        "Cos" => ElementwiseUnary::Cos,
        "Tan" => ElementwiseUnary::Tan,
        "Tanh" => ElementwiseUnary::Tanh,
        "Erf" => ElementwiseUnary::Erf,
        "Not" => return single_result(g.not(x)),
        "Relu" => ElementwiseUnary::Relu,
        "Sigmoid" => ElementwiseUnary::Sigmoid,
        "Softplus" => ElementwiseUnary::Softplus,
        "Softsign" => ElementwiseUnary::Softsign,
        other => return Err(Error::unsupported(format!("operator {other}"))),
    };
    let result = g.unary(op, x)?;
    single_result(if call.op == "Not" { g.cast(&result, ElementType::Bool) } else { Ok(result) })
}

/// Builds operators with two operands that the host has.
pub(super) fn binary(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (a, b) = (call.input(0)?, align_second_operand(g, call)?);
    let op = match call.op {
        "Add" => ElementwiseBinary::Add,
        "Sub" => ElementwiseBinary::Sub,
        "Mul" => ElementwiseBinary::Mul,
        "Div" => ElementwiseBinary::Div,
        "And" => ElementwiseBinary::And,
        "Or" => ElementwiseBinary::Or,
        "Xor" => ElementwiseBinary::Xor,
        "Equal" => ElementwiseBinary::Equal,
        "Greater" => ElementwiseBinary::Greater,
        "GreaterOrEqual" => ElementwiseBinary::GreaterOrEqual,
        "Less" => ElementwiseBinary::Lesser,
        "LessOrEqual" => ElementwiseBinary::LesserOrEqual,
        other => return Err(Error::unsupported(format!("operator {other}"))),
    };
    single_result(g.binary(op, a, &b))
}

/// Returns the second operand. Before version 7, an attribute names the axis that it is aligned at.
fn align_second_operand(g: &mut FoldingGraph, call: &OperatorCall) -> ValueResult {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let (Some(axis), true) = (call.optional_int("axis"), call.opset < 7) else { return Ok(b.clone()) };
    let missing = a.rank().checked_sub(normalize_axis(axis, a.rank())? + b.rank());
    let missing = missing.ok_or_else(|| Error::invalid(format!("{:?} does not fit at axis {axis}", b.shape())))?;
    let shape = [b.shape(), &vec![1; missing]].concat();
    g.reshape(b, &shape)
}

/// Builds Max, Min, Sum and Mean of any number of operands.
pub(super) fn variadic(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let all = call.inputs()?;
    let mut result = all[0].clone();
    for x in &all[1..] {
        result = match call.op {
            "Max" => g.max(&result, x)?,
            "Min" => g.min(&result, x)?,
            _ => g.add(&result, x)?,
        };
    }
    if call.op == "Mean" {
        let count = g.scalar_like(&result, all.len() as f64);
        result = g.div(&result, &count)?;
    }
    single_result(Ok(result))
}

/// Builds Where.
pub(super) fn select(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    single_result(g.select(call.input(0)?, call.input(1)?, call.input(2)?))
}

/// Builds Cast and CastLike. The second operand of CastLike has the result's type.
pub(super) fn cast(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let elem = match call.op {
        "CastLike" => call.input(1)?.elem(),
        _ => call.element_type("to")?.ok_or_else(|| Error::invalid("attribute `to` is missing"))?,
    };
    single_result(g.cast(call.input(0)?, elem))
}

/// Builds Pow. The result has the base's type. Powers of integers are products.
pub(super) fn pow(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (base, exponent) = (call.input(0)?, align_second_operand(g, call)?);
    if base.elem().is_float() {
        // For a small whole exponent, the product is exact and defined for negative bases.
        if let Some(constant) = exponent.constant()
            && exponent.len() == 1
            && exponent.rank() <= base.rank()
            && constant.floats() == [2.0]
        {
            return single_result(g.mul(base, base));
        }
        let exponent = g.cast(&exponent, base.elem())?;
        return single_result(g.pow(base, &exponent));
    }
    if exponent.elem().is_float() {
        let wide = g.cast(base, ElementType::Float32)?;
        let exponent = g.cast(&exponent, ElementType::Float32)?;
        let power = g.pow(&wide, &exponent)?;
        return single_result(g.cast(&power, base.elem()));
    }
    single_result(integer_pow(g, base, &exponent))
}

/// Returns the power by squaring, over the six bits that the exponent of a 64-bit power can have. Negative exponents
/// give 0.
fn integer_pow(g: &mut FoldingGraph, base: &GraphValue, exponent: &GraphValue) -> ValueResult {
    let mut exponent = g.cast(exponent, base.elem())?;
    let (one, zero, two) = (g.scalar_like(base, 1.0), g.scalar_like(base, 0.0), g.scalar_like(base, 2.0));
    let negative = g.lesser(&exponent, &zero)?;
    let mut result = g.select(&negative, &zero, &one)?;
    let mut square = base.clone();
    for bit in 0..6 {
        let half = g.div(&exponent, &two)?;
        let even = g.mul(&half, &two)?;
        let odd = g.equal(&even, &exponent)?;
        let odd = g.not(&odd)?;
        let product = g.mul(&result, &square)?;
        result = g.select(&odd, &product, &result)?;
        if bit < 5 {
            square = g.mul(&square, &square)?;
            exponent = half;
        }
    }
    Ok(result)
}

/// Builds Mod: the remainder with the sign of the divisor, or of the dividend if `fmod` is set.
pub(super) fn modulo(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let like_c = call.flag("fmod", false);
    if a.elem().is_float() {
        let quotient = g.div(a, b)?;
        // Truncation, which the host only has as a conversion to integers.
        let whole = if like_c {
            let (up, down) = (g.ceil(&quotient)?, g.floor(&quotient)?);
            let negative = g.lesser(&quotient, &g.scalar_like(a, 0.0))?;
            g.select(&negative, &up, &down)?
        } else {
            g.floor(&quotient)?
        };
        let part = g.mul(&whole, b)?;
        let rest = g.sub(a, &part)?;
        return single_result(fix_infinite_divisors(g, [a, b], &rest, like_c));
    }
    let quotient = g.div(a, b)?;
    let part = g.mul(&quotient, b)?;
    let rest = g.sub(a, &part)?;
    if like_c || a.elem().is_unsigned() {
        return single_result(Ok(rest));
    }
    let zero = g.scalar_like(a, 0.0);
    let (below, divisor_below) = (g.lesser(&rest, &zero)?, g.lesser(b, &zero)?);
    let signs_differ = g.xor(&below, &divisor_below)?;
    let exact = g.equal(&rest, &zero)?;
    let not_exact = g.not(&exact)?;
    let off = g.and(&signs_differ, &not_exact)?;
    let moved = g.add(&rest, b)?;
    single_result(g.select(&off, &moved, &rest))
}

/// Returns the float remainder with infinite divisors fixed: the result is the finite dividend, or the divisor if floor
/// rounds towards it. Other elements are `rest`. Source: ONNX Mod-28, special cases.
fn fix_infinite_divisors(
    g: &mut FoldingGraph,
    [a, b]: [&GraphValue; 2],
    rest: &GraphValue,
    like_c: bool,
) -> ValueResult {
    let infinity = g.scalar_like(a, f64::INFINITY);
    let (size_a, size_b) = (g.abs(a)?, g.abs(b)?);
    let (finite, infinite) = (g.lesser(&size_a, &infinity)?, g.equal(&size_b, &infinity)?);
    let special = g.and(&finite, &infinite)?;
    let mut value = a.clone();
    if !like_c {
        let zero = g.scalar_like(a, 0.0);
        let (below, above) = (g.lesser(a, &zero)?, g.greater(a, &zero)?);
        let divisor_below = g.lesser(b, &zero)?;
        let divisor_above = g.not(&divisor_below)?;
        let (low, high) = (g.and(&below, &divisor_above)?, g.and(&above, &divisor_below)?);
        let apart = g.or(&low, &high)?;
        value = g.select(&apart, b, a)?;
    }
    g.select(&special, &value, rest)
}

/// Builds Clip. The limits are attributes before version 11, then operands.
pub(super) fn clip(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    if call.opset < 11 {
        let (min, max) = (call.number("min"), call.number("max"));
        return single_result(g.clamp(x, min, max));
    }
    let mut limited = x.clone();
    if let Some(min) = call.optional(1) {
        limited = g.max(&limited, min)?;
    }
    if let Some(max) = call.optional(2) {
        limited = g.min(&limited, max)?;
    }
    single_result(Ok(limited))
}

/// Builds IsNaN.
pub(super) fn is_nan(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let same = g.equal(x, x)?;
    single_result(g.not(&same))
}

/// Builds IsInf, for the signs that the attributes select.
pub(super) fn is_inf(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let (positive, negative) = (g.scalar_like(x, f64::INFINITY), g.scalar_like(x, f64::NEG_INFINITY));
    let above = g.equal(x, &positive)?;
    let below = g.equal(x, &negative)?;
    single_result(match (call.flag("detect_positive", true), call.flag("detect_negative", true)) {
        (true, true) => g.or(&above, &below),
        (true, false) => Ok(above),
        (false, true) => Ok(below),
        (false, false) => g.xor(&above, &above),
    })
}

/// Builds the bitwise operators, bit by bit, and BitShift.
pub(super) fn bitwise(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    if call.op == "BitwiseNot" {
        // In two's complement, NOT is -1 - x. For unsigned numbers the maximum has the same bits as -1.
        let most = g.scalar_like(x, -1.0);
        let most = if x.elem().is_unsigned() { g.scalar_like(x, x.elem().range()[1]) } else { most };
        return single_result(g.sub(&most, x));
    }
    let y = call.input(1)?;
    if call.op == "BitShift" {
        let left = call.choice("direction", &["LEFT", "RIGHT"])? == "LEFT";
        return single_result(shift_bits(g, x, y, left));
    }
    let bits = 8 * x.elem().element_bytes();
    // Unsigned words keep the bits of a negative number, and dividing them by two shifts them.
    let words = if bits > 32 { ElementType::Uint64 } else { ElementType::Uint32 };
    let (mut a, mut b) = (g.cast(x, words)?, g.cast(y, words)?);
    let mut result = g.scalar_like(&a, 0.0);
    let two = g.scalar_like(&a, 2.0);
    for bit in 0..bits {
        let (half_a, half_b) = (g.div(&a, &two)?, g.div(&b, &two)?);
        let (bit_a, bit_b) = (last_bit(g, &a, &half_a)?, last_bit(g, &b, &half_b)?);
        let both = match call.op {
            "BitwiseAnd" => g.and(&bit_a, &bit_b)?,
            "BitwiseOr" => g.or(&bit_a, &bit_b)?,
            _ => g.xor(&bit_a, &bit_b)?,
        };
        let number = g.cast(&both, words)?;
        let weighted = g.mul_scalar(&number, 2f64.powi(bit as i32))?;
        result = g.add(&result, &weighted)?;
        (a, b) = (half_a, half_b);
    }
    single_result(g.cast(&result, x.elem()))
}

/// Shifts `x` by `y` bits, by multiplying or dividing by a power of two. A right shift fills with copies of the sign
/// bit. Negative amounts, and amounts of at least the type's width, leave only the fill bits. Source: ONNX BitShift-28.
fn shift_bits(g: &mut FoldingGraph, x: &GraphValue, y: &GraphValue, left: bool) -> ValueResult {
    let (zero, two, bits) =
        (g.scalar_like(x, 0.0), g.scalar_like(x, 2.0), g.scalar_like(x, 8.0 * x.elem().element_bytes() as f64));
    let mut valid = g.lesser(y, &bits)?;
    if !y.elem().is_unsigned() {
        let ahead = g.greater_or_equal(y, &zero)?;
        valid = g.and(&valid, &ahead)?;
    }
    let amount = g.select(&valid, y, &zero)?;
    let factor = integer_pow(g, &two, &amount)?;
    if left || x.elem().is_unsigned() {
        let moved = if left { g.mul(x, &factor)? } else { g.div(x, &factor)? };
        return g.select(&valid, &moved, &zero);
    }
    // Division rounds towards zero. For a negative number, the complement is divided instead, which is not negative.
    let ones = g.scalar_like(x, -1.0);
    let negative = g.lesser(x, &zero)?;
    let complement = g.sub(&ones, x)?;
    let size = g.select(&negative, &complement, x)?;
    let quotient = g.div(&size, &factor)?;
    let quotient = g.select(&valid, &quotient, &zero)?;
    let complement = g.sub(&ones, &quotient)?;
    g.select(&negative, &complement, &quotient)
}

fn last_bit(g: &mut FoldingGraph, x: &GraphValue, half: &GraphValue) -> Result<GraphValue> {
    let even = g.mul_scalar(half, 2.0)?;
    let bit = g.sub(x, &even)?;
    let bit = g.cast(&bit, ElementType::Uint8)?;
    g.cast(&bit, ElementType::Bool)
}
