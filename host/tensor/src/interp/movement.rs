//! Elements moved, repeated or left out: for each element of the result, where it comes from.

use super::coordinates::{each, offset};
use super::value::{Elements, Value};
use crate::Shape;
use crate::op::{Movement, Scalar};

pub(super) fn evaluate(op: &Movement, operands: &[&Value], result: &Shape) -> Elements {
    let from = operands[0].dims();
    let map = |source: &dyn Fn(usize, usize) -> usize| mapped(from, result, source);
    match op {
        Movement::Reshape(_) => operands[0].elements().clone(),
        Movement::Broadcast(_) => {
            moved(operands[0], map(&|axis, coordinate| if from[axis] == 1 { 0 } else { coordinate }))
        }
        Movement::Transpose(permutation) => moved(operands[0], transposed(from, result, permutation)),
        Movement::Slice { starts, sizes: _, strides } => {
            moved(operands[0], map(&|axis, coordinate| starts[axis] + coordinate * strides[axis]))
        }
        Movement::Reverse(axes) => moved(
            operands[0],
            map(&|axis, coordinate| if axes.contains(&axis) { from[axis] - 1 - coordinate } else { coordinate }),
        ),
        Movement::Pad { low, high: _, value } => operands[0].elements().pick(&padded(from, result, low), *value),
        Movement::Concat { axis } => joined(operands, *axis),
    }
}

fn moved(x: &Value, positions: Vec<Option<usize>>) -> Elements {
    x.elements().pick(&positions, Scalar::Int(0))
}

/// Positions where each coordinate of the source follows from the result's coordinate on the same axis.
fn mapped(from: &[usize], result: &Shape, source: &dyn Fn(usize, usize) -> usize) -> Vec<Option<usize>> {
    let mut positions = Vec::with_capacity(result.elements());
    let mut coordinates = vec![0; from.len()];
    each(result, |at| {
        (0..at.len()).for_each(|axis| coordinates[axis] = source(axis, at[axis]));
        positions.push(Some(offset(from, &coordinates)));
    });
    positions
}

fn transposed(from: &[usize], result: &Shape, permutation: &[usize]) -> Vec<Option<usize>> {
    let mut positions = Vec::with_capacity(result.elements());
    let mut coordinates = vec![0; from.len()];
    each(result, |at| {
        (0..at.len()).for_each(|axis| coordinates[permutation[axis]] = at[axis]);
        positions.push(Some(offset(from, &coordinates)));
    });
    positions
}

fn padded(from: &[usize], result: &Shape, low: &[usize]) -> Vec<Option<usize>> {
    let mut positions = Vec::with_capacity(result.elements());
    let mut coordinates = vec![0; from.len()];
    each(result, |at| {
        let inside = (0..at.len()).all(|axis| at[axis] >= low[axis] && at[axis] - low[axis] < from[axis]);
        positions.push(inside.then(|| {
            (0..at.len()).for_each(|axis| coordinates[axis] = at[axis] - low[axis]);
            offset(from, &coordinates)
        }));
    });
    positions
}

/// Operands one after another along `axis`: for each place before it, every operand's block.
fn joined(operands: &[&Value], axis: usize) -> Elements {
    fn of<'a, T: Copy + 'a>(operands: &[&'a Value], axis: usize, elements: fn(&'a Value) -> &'a [T]) -> Vec<T> {
        let outer: usize = operands[0].dims()[..axis].iter().product();
        let mut result = Vec::new();
        for place in 0..outer {
            for operand in operands {
                let block: usize = operand.dims()[axis..].iter().product();
                result.extend_from_slice(&elements(operand)[place * block..(place + 1) * block]);
            }
        }
        result
    }
    match operands[0].elements() {
        Elements::Float(_) => Elements::Float(of(operands, axis, Value::floats)),
        Elements::Int(_) => Elements::Int(of(operands, axis, Value::ints)),
    }
}
