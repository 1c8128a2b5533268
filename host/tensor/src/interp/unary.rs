//! Element-wise operators of one operand.

use super::value::{InterpElements, InterpTensor, integer_range};
use crate::DType;
use crate::op::UnaryOp;

pub(super) fn evaluate(op: UnaryOp, x: &InterpTensor) -> InterpElements {
    match x.elements() {
        InterpElements::Float(values) => float(op, values),
        InterpElements::Int(values) => int(op, values, x.descriptor().dtype),
    }
}

fn float(op: UnaryOp, values: &[f64]) -> InterpElements {
    let of = |f: fn(f64) -> f64| InterpElements::Float(values.iter().map(|&value| f(value)).collect());
    match op {
        UnaryOp::Neg => of(|x| -x),
        UnaryOp::Abs => of(f64::abs),
        UnaryOp::Sign => of(|x| if x == 0.0 { x } else { x.signum() }),
        UnaryOp::Exp => of(f64::exp),
        UnaryOp::Log => of(f64::ln),
        UnaryOp::Sqrt => of(f64::sqrt),
        UnaryOp::Reciprocal => of(f64::recip),
        UnaryOp::Sin => of(f64::sin),
        UnaryOp::Cos => of(f64::cos),
        UnaryOp::Tanh => of(f64::tanh),
        UnaryOp::Erf => of(erf),
        UnaryOp::Floor => of(f64::floor),
        UnaryOp::Ceil => of(f64::ceil),
        UnaryOp::RoundEven => of(f64::round_ties_even),
        UnaryOp::StopGradient => of(|x| x),
        UnaryOp::LogicalNot => unreachable!("inference has checked that the operand is uint8"),
        UnaryOp::Cast(to) if to.is_float() => of(|x| x),
        UnaryOp::Cast(to) => {
            let [min, max] = integer_range(to);
            // `as` truncates, saturates at i128 and turns NaN into 0.
            InterpElements::Int(values.iter().map(|&value| (value as i128).clamp(min, max)).collect())
        }
    }
}

fn int(op: UnaryOp, values: &[i128], dtype: DType) -> InterpElements {
    let of = |f: fn(i128) -> i128| InterpElements::Int(values.iter().map(|&value| f(value)).collect());
    match op {
        UnaryOp::Neg => of(|x| -x),
        UnaryOp::Abs => of(i128::abs),
        UnaryOp::Sign => of(i128::signum),
        UnaryOp::LogicalNot => of(|x| i128::from(x == 0)),
        UnaryOp::StopGradient => of(|x| x),
        // Directly, because a conversion through f64 would round twice.
        UnaryOp::Cast(DType::F32) => {
            InterpElements::Float(values.iter().map(|&value| f64::from(value as f32)).collect())
        }
        UnaryOp::Cast(DType::F16) => InterpElements::Float(values.iter().map(|&value| value as f64).collect()),
        UnaryOp::Cast(_) => of(|x| x),
        UnaryOp::Exp
        | UnaryOp::Log
        | UnaryOp::Sqrt
        | UnaryOp::Reciprocal
        | UnaryOp::Sin
        | UnaryOp::Cos
        | UnaryOp::Tanh
        | UnaryOp::Erf
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::RoundEven => unreachable!("inference has checked that the operand of {op:?} is no {dtype}"),
    }
}

/// Returns the error function to f64 precision: `2/sqrt(pi) * e^(-x^2) * sum of 2^n x^(2n+1) / (1*3*..*(2n+1))`, all
/// terms of one sign. Source: Abramowitz and Stegun, 7.1.6.
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
