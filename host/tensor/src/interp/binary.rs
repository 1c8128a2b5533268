//! Element-wise operators of two operands, and selection.

use super::value::{InterpElements, InterpTensor};
use crate::op::BinaryOp;

pub(super) fn evaluate(op: BinaryOp, a: &InterpTensor, b: &InterpTensor) -> InterpElements {
    match (a.elements(), b.elements()) {
        (InterpElements::Float(a), InterpElements::Float(b)) => float(op, a, b),
        (InterpElements::Int(a), InterpElements::Int(b)) => int(op, a, b),
        _ => unreachable!("inference has checked that operands of {op:?} have one data type"),
    }
}

fn float(op: BinaryOp, a: &[f64], b: &[f64]) -> InterpElements {
    let of = |f: fn(f64, f64) -> f64| InterpElements::Float(a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect());
    let truth = |f: fn(&f64, &f64) -> bool| InterpElements::Int(a.iter().zip(b).map(|(a, b)| f(a, b).into()).collect());
    match op {
        BinaryOp::Add => of(|a, b| a + b),
        BinaryOp::Sub => of(|a, b| a - b),
        BinaryOp::Mul => of(|a, b| a * b),
        BinaryOp::Div => of(|a, b| a / b),
        BinaryOp::Pow => of(f64::powf),
        BinaryOp::Max => of(max),
        BinaryOp::Min => of(min),
        BinaryOp::Equal => truth(f64::eq),
        BinaryOp::Less => truth(f64::lt),
        BinaryOp::LessOrEqual => truth(f64::le),
        BinaryOp::LogicalAnd | BinaryOp::LogicalOr | BinaryOp::LogicalXor => {
            unreachable!("inference has checked that operands of {op:?} are uint8")
        }
    }
}

fn int(op: BinaryOp, a: &[i128], b: &[i128]) -> InterpElements {
    let of = |f: fn(i128, i128) -> i128| InterpElements::Int(a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect());
    let truth =
        |f: fn(&i128, &i128) -> bool| InterpElements::Int(a.iter().zip(b).map(|(a, b)| f(a, b).into()).collect());
    match op {
        BinaryOp::Add => of(|a, b| a + b),
        BinaryOp::Sub => of(|a, b| a - b),
        // The product of two 64-bit factors can exceed 2^127; if it wraps, its low 64 bits are still correct.
        BinaryOp::Mul => of(i128::wrapping_mul),
        BinaryOp::Div => of(|a, b| if b == 0 { 0 } else { a / b }),
        BinaryOp::Max => of(i128::max),
        BinaryOp::Min => of(i128::min),
        BinaryOp::Equal => truth(i128::eq),
        BinaryOp::Less => truth(i128::lt),
        BinaryOp::LessOrEqual => truth(i128::le),
        BinaryOp::LogicalAnd => truth(|a, b| *a != 0 && *b != 0),
        BinaryOp::LogicalOr => truth(|a, b| *a != 0 || *b != 0),
        BinaryOp::LogicalXor => truth(|a, b| (*a != 0) != (*b != 0)),
        BinaryOp::Pow => unreachable!("inference has checked that operands of {op:?} are floats"),
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
