//! Gather and scatter.

use super::coordinates::split_dims_at_axis;
use super::value::{InterpElements, InterpTensor};
use crate::Shape;
use crate::op::{IndexOp, Scalar, ScatterCombine};

pub(super) fn evaluate(op: IndexOp, operands: &[&InterpTensor], result: &Shape) -> InterpElements {
    match op {
        IndexOp::Gather { axis } => {
            let (x, indices) = (operands[0], operands[1].ints());
            let [outer, size, inner] = split_dims_at_axis(x.dims(), axis);
            let mut positions = Vec::with_capacity(result.elements());
            for before in 0..outer {
                for &index in indices {
                    let start = (before * size + clamp_index(index, size)) * inner;
                    positions.extend((start..start + inner).map(Some));
                }
            }
            x.elements().pick_positions(&positions, Scalar::Int(0))
        }
        IndexOp::ScatterAdd { axis, size } => {
            let (indices, updates) = (operands[0].ints(), operands[1]);
            let [outer, _, inner] = split_dims_at_axis(result, axis);
            let targets = update_targets(indices, outer, size, inner);
            match updates.elements() {
                InterpElements::Float(values) => InterpElements::Float(scatter_updates(
                    vec![0.0; result.elements()],
                    values,
                    &targets,
                    float_combine(ScatterCombine::Add),
                )),
                InterpElements::Int(values) => InterpElements::Int(scatter_updates(
                    vec![0; result.elements()],
                    values,
                    &targets,
                    int_combine(ScatterCombine::Add),
                )),
            }
        }
        IndexOp::Scatter { axis, combine } => {
            let (x, indices, updates) = (operands[0], operands[1].ints(), operands[2]);
            let [outer, size, inner] = split_dims_at_axis(x.dims(), axis);
            let targets = update_targets(indices, outer, size, inner);
            match (x.elements(), updates.elements()) {
                (InterpElements::Float(x), InterpElements::Float(updates)) => {
                    InterpElements::Float(scatter_updates(x.clone(), updates, &targets, float_combine(combine)))
                }
                (InterpElements::Int(x), InterpElements::Int(updates)) => {
                    InterpElements::Int(scatter_updates(x.clone(), updates, &targets, int_combine(combine)))
                }
                (InterpElements::Float(_), InterpElements::Int(_))
                | (InterpElements::Int(_), InterpElements::Float(_)) => {
                    unreachable!("inference lets only operands of one data type through")
                }
            }
        }
    }
}

/// Returns the target position of each update, in the updates' row-major order.
fn update_targets(indices: &[i128], outer: usize, size: usize, inner: usize) -> Vec<usize> {
    let mut targets = Vec::with_capacity(outer * indices.len() * inner);
    for before in 0..outer {
        for &index in indices {
            let start = (before * size + clamp_index(index, size)) * inner;
            targets.extend(start..start + inner);
        }
    }
    targets
}

fn scatter_updates<T: Copy>(mut places: Vec<T>, updates: &[T], targets: &[usize], combine: fn(T, T) -> T) -> Vec<T> {
    updates.iter().zip(targets).for_each(|(&update, &to)| places[to] = combine(places[to], update));
    places
}

fn float_combine(combine: ScatterCombine) -> fn(f64, f64) -> f64 {
    match combine {
        ScatterCombine::Replace => |_, update| update,
        ScatterCombine::Add => |place, update| place + update,
        ScatterCombine::Mul => |place, update| place * update,
        ScatterCombine::Min => {
            |place, update| if place.is_nan() || update.is_nan() { f64::NAN } else { place.min(update) }
        }
        ScatterCombine::Max => {
            |place, update| if place.is_nan() || update.is_nan() { f64::NAN } else { place.max(update) }
        }
    }
}

fn int_combine(combine: ScatterCombine) -> fn(i128, i128) -> i128 {
    match combine {
        ScatterCombine::Replace => |_, update| update,
        ScatterCombine::Add => i128::wrapping_add,
        ScatterCombine::Mul => i128::wrapping_mul,
        ScatterCombine::Min => i128::min,
        ScatterCombine::Max => i128::max,
    }
}

/// Returns the element position for an index: counted from the end if negative, clamped if out of range.
fn clamp_index(index: i128, size: usize) -> usize {
    let size = size as i128;
    let index = if index < 0 { index + size } else { index };
    index.clamp(0, (size - 1).max(0)) as usize
}
