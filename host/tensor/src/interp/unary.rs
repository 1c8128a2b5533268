//! One operand, element by element.

use super::value::{Elements, Value, range};
use crate::DType;
use crate::op::Unary;

pub(super) fn evaluate(op: Unary, x: &Value) -> Elements {
    match x.elements() {
        Elements::Float(values) => float(op, values),
        Elements::Int(values) => int(op, values, x.descriptor().dtype),
    }
}

fn float(op: Unary, values: &[f64]) -> Elements {
    let of = |f: fn(f64) -> f64| Elements::Float(values.iter().map(|&value| f(value)).collect());
    match op {
        Unary::Neg => of(|x| -x),
        Unary::Abs => of(f64::abs),
        Unary::Sign => of(|x| if x == 0.0 { x } else { x.signum() }),
        Unary::Exp => of(f64::exp),
        Unary::Log => of(f64::ln),
        Unary::Sqrt => of(f64::sqrt),
        Unary::Reciprocal => of(f64::recip),
        Unary::Sin => of(f64::sin),
        Unary::Cos => of(f64::cos),
        Unary::Tanh => of(f64::tanh),
        Unary::Erf => of(erf),
        Unary::Floor => of(f64::floor),
        Unary::Ceil => of(f64::ceil),
        Unary::RoundEven => of(f64::round_ties_even),
        Unary::StopGradient => of(|x| x),
        Unary::LogicalNot => unreachable!("inference has checked that the operand is uint8"),
        Unary::Cast(to) if to.is_float() => of(|x| x),
        Unary::Cast(to) => {
            let [min, max] = range(to);
            // `as` truncates, saturates at i128 and turns NaN into 0.
            Elements::Int(values.iter().map(|&value| (value as i128).clamp(min, max)).collect())
        }
    }
}

fn int(op: Unary, values: &[i128], dtype: DType) -> Elements {
    let of = |f: fn(i128) -> i128| Elements::Int(values.iter().map(|&value| f(value)).collect());
    match op {
        Unary::Neg => of(|x| -x),
        Unary::Abs => of(i128::abs),
        Unary::Sign => of(i128::signum),
        Unary::LogicalNot => of(|x| i128::from(x == 0)),
        Unary::StopGradient => of(|x| x),
        // One rounding: a detour over f64 would round twice.
        Unary::Cast(DType::F32) => Elements::Float(values.iter().map(|&value| f64::from(value as f32)).collect()),
        Unary::Cast(DType::F16) => Elements::Float(values.iter().map(|&value| value as f64).collect()),
        Unary::Cast(_) => of(|x| x),
        Unary::Exp
        | Unary::Log
        | Unary::Sqrt
        | Unary::Reciprocal
        | Unary::Sin
        | Unary::Cos
        | Unary::Tanh
        | Unary::Erf
        | Unary::Floor
        | Unary::Ceil
        | Unary::RoundEven => unreachable!("inference has checked that the operand of {op:?} is no {dtype}"),
    }
}

/// The error function to f64 precision: `2/sqrt(pi) * e^(-x^2) * sum of 2^n x^(2n+1) / (1*3*..*(2n+1))`, all terms of
/// one sign. Source: Abramowitz and Stegun, 7.1.6.
pub(super) fn erf(x: f64) -> f64 {
    if x.is_nan() || x == 0.0 {
        return x;
    }
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > sum.abs() * 1e-18 {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}
