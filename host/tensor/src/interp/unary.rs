//! Element-wise operators of one operand.

use super::value::{InterpElements, InterpTensor, integer_range};
use crate::DType;
use crate::op::UnaryOp;

pub(super) fn evaluate(op: UnaryOp, x: &InterpTensor) -> InterpElements {
    let of = |float: fn(f64) -> f64, int: fn(i128) -> i128| match x.elements() {
        InterpElements::Float(values) => InterpElements::Float(values.iter().map(|&value| float(value)).collect()),
        InterpElements::Int(values) => InterpElements::Int(values.iter().map(|&value| int(value)).collect()),
    };
    let of_floats = |float| of(float, |_| unreachable!("inference has checked that the operand is a float"));
    let of_ints = |int| of(|_| unreachable!("inference has checked that the operand is an integer"), int);
    match op {
        UnaryOp::Neg => of(|x| -x, |x| -x),
        UnaryOp::Abs => of(f64::abs, i128::abs),
        UnaryOp::Sign => of(|x| if x == 0.0 { x } else { x.signum() }, i128::signum),
        UnaryOp::Exp => of_floats(f64::exp),
        UnaryOp::Log => of_floats(f64::ln),
        UnaryOp::Sqrt => of_floats(f64::sqrt),
        UnaryOp::Reciprocal => of_floats(f64::recip),
        UnaryOp::Sin => of_floats(f64::sin),
        UnaryOp::Cos => of_floats(f64::cos),
        UnaryOp::Tanh => of_floats(f64::tanh),
        UnaryOp::Erf => of_floats(erf),
        UnaryOp::Floor => of_floats(f64::floor),
        UnaryOp::Ceil => of_floats(f64::ceil),
        UnaryOp::RoundEven => of_floats(f64::round_ties_even),
        UnaryOp::LogicalNot => of_ints(|x| i128::from(x == 0)),
        UnaryOp::StopGradient => of(|x| x, |x| x),
        UnaryOp::Cast(to) => cast(to, x.elements()),
    }
}

fn cast(to: DType, x: &InterpElements) -> InterpElements {
    match (x, to) {
        (InterpElements::Float(values), DType::F32 | DType::F16) => InterpElements::Float(values.clone()),
        (InterpElements::Float(values), to) => {
            let [min, max] = integer_range(to);
            // `as` truncates, saturates at i128 and turns NaN into 0.
            InterpElements::Int(values.iter().map(|&value| (value as i128).clamp(min, max)).collect())
        }
        // Directly, because a conversion through f64 would round twice.
        (InterpElements::Int(values), DType::F32) => {
            InterpElements::Float(values.iter().map(|&value| f64::from(value as f32)).collect())
        }
        (InterpElements::Int(values), DType::F16) => {
            InterpElements::Float(values.iter().map(|&value| value as f64).collect())
        }
        (InterpElements::Int(values), _) => InterpElements::Int(values.clone()),
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
