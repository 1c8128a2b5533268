//! Two operands of one shape and data type, and the choice between two.

use super::value::{Elements, Value};
use crate::op::Binary;

pub(super) fn evaluate(op: Binary, a: &Value, b: &Value) -> Elements {
    match (a.elements(), b.elements()) {
        (Elements::Float(a), Elements::Float(b)) => float(op, a, b),
        (Elements::Int(a), Elements::Int(b)) => int(op, a, b),
        _ => unreachable!("inference has checked that operands of {op:?} have one data type"),
    }
}

fn float(op: Binary, a: &[f64], b: &[f64]) -> Elements {
    let of = |f: fn(f64, f64) -> f64| Elements::Float(a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect());
    let truth = |f: fn(&f64, &f64) -> bool| Elements::Int(a.iter().zip(b).map(|(a, b)| f(a, b).into()).collect());
    match op {
        Binary::Add => of(|a, b| a + b),
        Binary::Sub => of(|a, b| a - b),
        Binary::Mul => of(|a, b| a * b),
        Binary::Div => of(|a, b| a / b),
        Binary::Pow => of(f64::powf),
        Binary::Max => of(max),
        Binary::Min => of(min),
        Binary::Equal => truth(f64::eq),
        Binary::Less => truth(f64::lt),
        Binary::LessOrEqual => truth(f64::le),
        Binary::LogicalAnd | Binary::LogicalOr | Binary::LogicalXor => {
            unreachable!("inference has checked that operands of {op:?} are uint8")
        }
    }
}

fn int(op: Binary, a: &[i128], b: &[i128]) -> Elements {
    let of = |f: fn(i128, i128) -> i128| Elements::Int(a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect());
    let truth = |f: fn(&i128, &i128) -> bool| Elements::Int(a.iter().zip(b).map(|(a, b)| f(a, b).into()).collect());
    match op {
        Binary::Add => of(|a, b| a + b),
        Binary::Sub => of(|a, b| a - b),
        // Two 64-bit factors can pass 2^127; wrapped, their low 64 bits are still right.
        Binary::Mul => of(i128::wrapping_mul),
        Binary::Div => of(|a, b| if b == 0 { 0 } else { a / b }),
        Binary::Max => of(i128::max),
        Binary::Min => of(i128::min),
        Binary::Equal => truth(i128::eq),
        Binary::Less => truth(i128::lt),
        Binary::LessOrEqual => truth(i128::le),
        Binary::LogicalAnd => truth(|a, b| *a != 0 && *b != 0),
        Binary::LogicalOr => truth(|a, b| *a != 0 || *b != 0),
        Binary::LogicalXor => truth(|a, b| (*a != 0) != (*b != 0)),
        Binary::Pow => unreachable!("inference has checked that operands of {op:?} are floats"),
    }
}

pub(super) fn select(condition: &Value, a: &Value, b: &Value) -> Elements {
    fn of<T: Copy>(condition: &[i128], a: &[T], b: &[T]) -> Vec<T> {
        condition.iter().zip(a.iter().zip(b)).map(|(&c, (&a, &b))| if c != 0 { a } else { b }).collect()
    }
    match (a.elements(), b.elements()) {
        (Elements::Float(a), Elements::Float(b)) => Elements::Float(of(condition.ints(), a, b)),
        (Elements::Int(a), Elements::Int(b)) => Elements::Int(of(condition.ints(), a, b)),
        _ => unreachable!("inference has checked that a selection's branches have one data type"),
    }
}

/// The larger; NaN if either is NaN.
pub(super) fn max(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// The smaller; NaN if either is NaN.
pub(super) fn min(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}
