//! Movements: computes the source position of each element of the result.

use super::coordinates::{for_each_coordinate, row_major_offset};
use super::value::{InterpElements, InterpTensor};
use crate::Shape;
use crate::op::{MovementOp, Scalar};

pub(super) fn evaluate(op: &MovementOp, operands: &[&InterpTensor], result: &Shape) -> InterpElements {
    let from = operands[0].dims();
    let map = |source: &dyn Fn(usize, usize) -> usize| axis_positions(from, result, source);
    match op {
        MovementOp::Reshape(_) => operands[0].elements().clone(),
        MovementOp::Broadcast(_) => {
            pick_elements(operands[0], map(&|axis, coordinate| if from[axis] == 1 { 0 } else { coordinate }))
        }
        MovementOp::Transpose(permutation) => {
            pick_elements(operands[0], transposed_positions(from, result, permutation))
        }
        MovementOp::Slice { starts, sizes: _, strides } => {
            pick_elements(operands[0], map(&|axis, coordinate| starts[axis] + coordinate * strides[axis]))
        }
        MovementOp::Reverse(axes) => pick_elements(
            operands[0],
            map(&|axis, coordinate| if axes.contains(&axis) { from[axis] - 1 - coordinate } else { coordinate }),
        ),
        MovementOp::Pad { low, high: _, value } => {
            operands[0].elements().pick_positions(&padded_positions(from, result, low), *value)
        }
        MovementOp::Concat { axis } => concatenate(operands, *axis),
    }
}

fn pick_elements(x: &InterpTensor, positions: Vec<Option<usize>>) -> InterpElements {
    x.elements().pick_positions(&positions, Scalar::Int(0))
}

/// Returns source positions for movements in which each source coordinate depends only on the result's coordinate on
/// the same axis.
fn axis_positions(from: &[usize], result: &Shape, source: &dyn Fn(usize, usize) -> usize) -> Vec<Option<usize>> {
    let mut positions = Vec::with_capacity(result.elements());
    let mut coordinates = vec![0; from.len()];
    for_each_coordinate(result, |at| {
        (0..at.len()).for_each(|axis| coordinates[axis] = source(axis, at[axis]));
        positions.push(Some(row_major_offset(from, &coordinates)));
    });
    positions
}

fn transposed_positions(from: &[usize], result: &Shape, permutation: &[usize]) -> Vec<Option<usize>> {
    let mut positions = Vec::with_capacity(result.elements());
    let mut coordinates = vec![0; from.len()];
    for_each_coordinate(result, |at| {
        (0..at.len()).for_each(|axis| coordinates[permutation[axis]] = at[axis]);
        positions.push(Some(row_major_offset(from, &coordinates)));
    });
    positions
}

fn padded_positions(from: &[usize], result: &Shape, low: &[usize]) -> Vec<Option<usize>> {
    let mut positions = Vec::with_capacity(result.elements());
    let mut coordinates = vec![0; from.len()];
    for_each_coordinate(result, |at| {
        let inside = (0..at.len()).all(|axis| at[axis] >= low[axis] && at[axis] - low[axis] < from[axis]);
        positions.push(inside.then(|| {
            (0..at.len()).for_each(|axis| coordinates[axis] = at[axis] - low[axis]);
            row_major_offset(from, &coordinates)
        }));
    });
    positions
}

/// Concatenates operands along `axis`: for each position before the axis, the block of every operand.
fn concatenate(operands: &[&InterpTensor], axis: usize) -> InterpElements {
    fn of<'a, T: Copy + 'a>(
        operands: &[&'a InterpTensor],
        axis: usize,
        elements: fn(&'a InterpTensor) -> &'a [T],
    ) -> Vec<T> {
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
        InterpElements::Float(_) => InterpElements::Float(of(operands, axis, InterpTensor::floats)),
        InterpElements::Int(_) => InterpElements::Int(of(operands, axis, InterpTensor::ints)),
    }
}
