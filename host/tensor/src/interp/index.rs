//! Elements chosen by other elements' values.

use super::coordinates::around;
use super::value::{Elements, Value};
use crate::Shape;
use crate::op::{Combine, Index, Scalar};

pub(super) fn evaluate(op: Index, operands: &[&Value], result: &Shape) -> Elements {
    match op {
        Index::Gather { axis } => {
            let (x, indices) = (operands[0], operands[1].ints());
            let [outer, size, inner] = around(x.dims(), axis);
            let mut positions = Vec::with_capacity(result.elements());
            for before in 0..outer {
                for &index in indices {
                    let start = (before * size + clamped(index, size)) * inner;
                    positions.extend((start..start + inner).map(Some));
                }
            }
            x.elements().pick(&positions, Scalar::Int(0))
        }
        Index::ScatterAdd { axis, size } => {
            let (indices, updates) = (operands[0].ints(), operands[1]);
            let [outer, _, inner] = around(result, axis);
            let targets = targets(indices, outer, size, inner);
            match updates.elements() {
                Elements::Float(values) => {
                    Elements::Float(scattered(vec![0.0; result.elements()], values, &targets, float(Combine::Add)))
                }
                Elements::Int(values) => {
                    Elements::Int(scattered(vec![0; result.elements()], values, &targets, int(Combine::Add)))
                }
            }
        }
        Index::Scatter { axis, combine } => {
            let (x, indices, updates) = (operands[0], operands[1].ints(), operands[2]);
            let [outer, size, inner] = around(x.dims(), axis);
            let targets = targets(indices, outer, size, inner);
            match (x.elements(), updates.elements()) {
                (Elements::Float(x), Elements::Float(updates)) => {
                    Elements::Float(scattered(x.clone(), updates, &targets, float(combine)))
                }
                (Elements::Int(x), Elements::Int(updates)) => {
                    Elements::Int(scattered(x.clone(), updates, &targets, int(combine)))
                }
                (Elements::Float(_), Elements::Int(_)) | (Elements::Int(_), Elements::Float(_)) => {
                    unreachable!("inference lets only operands of one data type through")
                }
            }
        }
    }
}

/// Where each update goes, in the updates' row-major order.
fn targets(indices: &[i128], outer: usize, size: usize, inner: usize) -> Vec<usize> {
    let mut targets = Vec::with_capacity(outer * indices.len() * inner);
    for before in 0..outer {
        for &index in indices {
            let start = (before * size + clamped(index, size)) * inner;
            targets.extend(start..start + inner);
        }
    }
    targets
}

fn scattered<T: Copy>(mut places: Vec<T>, updates: &[T], targets: &[usize], combine: fn(T, T) -> T) -> Vec<T> {
    updates.iter().zip(targets).for_each(|(&update, &to)| places[to] = combine(places[to], update));
    places
}

fn float(combine: Combine) -> fn(f64, f64) -> f64 {
    match combine {
        Combine::Replace => |_, update| update,
        Combine::Add => |place, update| place + update,
        Combine::Mul => |place, update| place * update,
        Combine::Min => |place, update| if place.is_nan() || update.is_nan() { f64::NAN } else { place.min(update) },
        Combine::Max => |place, update| if place.is_nan() || update.is_nan() { f64::NAN } else { place.max(update) },
    }
}

fn int(combine: Combine) -> fn(i128, i128) -> i128 {
    match combine {
        Combine::Replace => |_, update| update,
        Combine::Add => i128::wrapping_add,
        Combine::Mul => i128::wrapping_mul,
        Combine::Min => i128::min,
        Combine::Max => i128::max,
    }
}

/// The element an index means: from the end if negative, the nearest if outside.
fn clamped(index: i128, size: usize) -> usize {
    let size = size as i128;
    let index = if index < 0 { index + size } else { index };
    index.clamp(0, (size - 1).max(0)) as usize
}
