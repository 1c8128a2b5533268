//! Reductions.

use super::binary::{max, min};
use super::coordinates::{for_each_coordinate, row_major_offset, split_dims_at_axis};
use super::value::{InterpElements, InterpTensor, integer_range, wrap_to_dtype};
use crate::DType;
use crate::op::{ReduceKind, ReduceOp};

pub(super) fn evaluate(op: &ReduceOp, x: &InterpTensor) -> InterpElements {
    match op {
        ReduceOp::Fold { kind, axes } => {
            let (positions, count) = result_positions(x.dims(), axes);
            match x.elements() {
                InterpElements::Float(values) => InterpElements::Float(fold_floats(*kind, values, &positions, count)),
                InterpElements::Int(values) => {
                    InterpElements::Int(fold_ints(*kind, values, &positions, count, x.descriptor().dtype))
                }
            }
        }
        ReduceOp::ArgMax { axis } => InterpElements::Int(first_extremum(x, *axis, |a, b| a > b, |a, b| a > b)),
        ReduceOp::ArgMin { axis } => InterpElements::Int(first_extremum(x, *axis, |a, b| a < b, |a, b| a < b)),
    }
}

/// Returns, for each element of `dims`, the position of the result that it is reduced into, and the number of results.
fn result_positions(dims: &[usize], axes: &[usize]) -> (Vec<usize>, usize) {
    let mut outer_dims = dims.to_vec();
    axes.iter().for_each(|&axis| outer_dims[axis] = 1);
    let mut positions = Vec::with_capacity(dims.iter().product());
    let mut to = vec![0; dims.len()];
    for_each_coordinate(dims, |at| {
        to.copy_from_slice(at);
        axes.iter().for_each(|&axis| to[axis] = 0);
        positions.push(row_major_offset(&outer_dims, &to));
    });
    (positions, outer_dims.iter().product())
}

fn fold_floats(kind: ReduceKind, values: &[f64], positions: &[usize], count: usize) -> Vec<f64> {
    let (start, fold): (f64, fn(f64, f64) -> f64) = match kind {
        ReduceKind::Sum => (0.0, |a, b| a + b),
        ReduceKind::Product => (1.0, |a, b| a * b),
        ReduceKind::Max => (f64::NEG_INFINITY, max),
        ReduceKind::Min => (f64::INFINITY, min),
    };
    let mut results = vec![start; count];
    values.iter().zip(positions).for_each(|(&value, &to)| results[to] = fold(results[to], value));
    results
}

fn fold_ints(kind: ReduceKind, values: &[i128], positions: &[usize], count: usize, dtype: DType) -> Vec<i128> {
    let [smallest, largest] = integer_range(dtype);
    let (start, fold): (i128, fn(i128, i128) -> i128) = match kind {
        ReduceKind::Sum => (0, |a, b| a + b),
        ReduceKind::Product => (1, i128::wrapping_mul),
        ReduceKind::Max => (smallest, i128::max),
        ReduceKind::Min => (largest, i128::min),
    };
    let mut results = vec![start; count];
    values.iter().zip(positions).for_each(|(&value, &to)| results[to] = wrap_to_dtype(fold(results[to], value), dtype));
    results
}

/// Returns, along `axis`, the index of the first largest or smallest element; the first NaN wins over all numbers.
fn first_extremum(
    x: &InterpTensor,
    axis: usize,
    floats: fn(f64, f64) -> bool,
    ints: fn(i128, i128) -> bool,
) -> Vec<i128> {
    fn of<T: Copy>(values: &[T], [outer, size, inner]: [usize; 3], beats: fn(T, T) -> bool) -> Vec<i128> {
        let mut results = Vec::with_capacity(outer * inner);
        for before in 0..outer {
            for after in 0..inner {
                let element = |index: usize| values[(before * size + index) * inner + after];
                let best =
                    (1..size).fold(0, |best, index| if beats(element(index), element(best)) { index } else { best });
                results.push(best as i128);
            }
        }
        results
    }
    let sizes = split_dims_at_axis(x.dims(), axis);
    match x.elements() {
        InterpElements::Float(values) => of(values, sizes, floats),
        InterpElements::Int(values) => of(values, sizes, ints),
    }
}
