//! Elements chosen by other elements' values.

use super::coordinates::around;
use super::value::{Elements, Value};
use crate::Shape;
use crate::op::{Index, Scalar};

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
                Elements::Float(values) => Elements::Float(scattered(values, &targets, result, 0.0, |a, b| a + b)),
                Elements::Int(values) => Elements::Int(scattered(values, &targets, result, 0, i128::wrapping_add)),
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

fn scattered<T: Copy>(updates: &[T], targets: &[usize], result: &Shape, zero: T, add: fn(T, T) -> T) -> Vec<T> {
    let mut results = vec![zero; result.elements()];
    updates.iter().zip(targets).for_each(|(&update, &to)| results[to] = add(results[to], update));
    results
}

/// The element an index means: from the end if negative, the nearest if outside.
fn clamped(index: i128, size: usize) -> usize {
    let size = size as i128;
    let index = if index < 0 { index + size } else { index };
    index.clamp(0, (size - 1).max(0)) as usize
}
