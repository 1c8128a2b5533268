//! Element-wise operators of two operands, and selection.

use super::value::{InterpElements, InterpTensor};
use crate::op::BinaryOp;

pub(super) fn evaluate(op: BinaryOp, a: &InterpTensor, b: &InterpTensor) -> InterpElements {
    let of = |float: fn(f64, f64) -> f64, int: fn(i128, i128) -> i128| match (a.elements(), b.elements()) {
        (InterpElements::Float(a), InterpElements::Float(b)) => {
            InterpElements::Float(a.iter().zip(b).map(|(&a, &b)| float(a, b)).collect())
        }
        (InterpElements::Int(a), InterpElements::Int(b)) => {
            InterpElements::Int(a.iter().zip(b).map(|(&a, &b)| int(a, b)).collect())
        }
        _ => unreachable!("inference has checked that operands of {op:?} have one data type"),
    };
    let of_floats = |float| of(float, |_, _| unreachable!("inference has checked that the operands are floats"));
    let truth = |float: fn(&f64, &f64) -> bool, int: fn(&i128, &i128) -> bool| match (a.elements(), b.elements()) {
        (InterpElements::Float(a), InterpElements::Float(b)) => {
            InterpElements::Int(a.iter().zip(b).map(|(a, b)| float(a, b).into()).collect())
        }
        (InterpElements::Int(a), InterpElements::Int(b)) => {
            InterpElements::Int(a.iter().zip(b).map(|(a, b)| int(a, b).into()).collect())
        }
        _ => unreachable!("inference has checked that operands of {op:?} have one data type"),
    };
    let logic = |int| truth(|_, _| unreachable!("inference has checked that the operands are uint8"), int);
    match op {
        BinaryOp::Add => of(|a, b| a + b, |a, b| a + b),
        BinaryOp::Sub => of(|a, b| a - b, |a, b| a - b),
        // The product of two 64-bit factors can exceed 2^127; if it wraps, its low 64 bits are still correct.
        BinaryOp::Mul => of(|a, b| a * b, i128::wrapping_mul),
        BinaryOp::Div => of(|a, b| a / b, |a, b| if b == 0 { 0 } else { a / b }),
        BinaryOp::Pow => of_floats(f64::powf),
        BinaryOp::Max => of(max, i128::max),
        BinaryOp::Min => of(min, i128::min),
        BinaryOp::Equal => truth(f64::eq, i128::eq),
        BinaryOp::Less => truth(f64::lt, i128::lt),
        BinaryOp::LessOrEqual => truth(f64::le, i128::le),
        BinaryOp::LogicalAnd => logic(|a, b| *a != 0 && *b != 0),
        BinaryOp::LogicalOr => logic(|a, b| *a != 0 || *b != 0),
        BinaryOp::LogicalXor => logic(|a, b| (*a != 0) != (*b != 0)),
    }
}

pub(super) fn select(condition: &InterpTensor, a: &InterpTensor, b: &InterpTensor) -> InterpElements {
    fn of<T: Copy>(condition: &[i128], a: &[T], b: &[T]) -> Vec<T> {
        condition.iter().zip(a.iter().zip(b)).map(|(&c, (&a, &b))| if c != 0 { a } else { b }).collect()
    }
    match (a.elements(), b.elements()) {
        (InterpElements::Float(a), InterpElements::Float(b)) => InterpElements::Float(of(condition.ints(), a, b)),
        (InterpElements::Int(a), InterpElements::Int(b)) => InterpElements::Int(of(condition.ints(), a, b)),
        _ => unreachable!("inference has checked that a selection's branches have one data type"),
    }
}

/// Returns the larger; NaN if either is NaN.
pub(super) fn max(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// Returns the smaller; NaN if either is NaN.
pub(super) fn min(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}
