//! Windowed operators. All visit the same pairs of input and output positions; they differ in the value that they add
//! and its destination.

use super::binary::max;
use super::value::{InterpElements, InterpTensor};
use crate::Shape;
use crate::op::{Conv2d, ConvolutionOp, Pool2d, PoolKind};

pub(super) fn evaluate(op: &ConvolutionOp, operands: &[&InterpTensor], result: &Shape) -> InterpElements {
    let mut results = vec![0.0; result.elements()];
    match op {
        ConvolutionOp::Conv2d(conv) => {
            let (x, filter) = (operands[0], operands[1]);
            let (xs, fs) = (x.floats(), filter.floats());
            for_each_product(conv, x.dims(), filter.dims(), result, |x, f, y| results[y] += xs[x] * fs[f]);
        }
        ConvolutionOp::Conv2dInputGrad { conv, size: _ } => {
            let (dy, filter) = (operands[0], operands[1]);
            let (ys, fs) = (dy.floats(), filter.floats());
            for_each_product(conv, result, filter.dims(), dy.dims(), |x, f, y| results[x] += ys[y] * fs[f]);
        }
        ConvolutionOp::Conv2dFilterGrad { conv, window: _ } => {
            let (x, dy) = (operands[0], operands[1]);
            let (xs, ys) = (x.floats(), dy.floats());
            for_each_product(conv, x.dims(), result, dy.dims(), |x, f, y| results[f] += xs[x] * ys[y]);
        }
        ConvolutionOp::Pool2d { kind: PoolKind::Sum, pool } => {
            let xs = operands[0].floats();
            for_each_window_element(pool, operands[0].dims(), result, |x, y| results[y] += xs[x]);
        }
        ConvolutionOp::Pool2d { kind: PoolKind::Max, pool } => {
            let xs = operands[0].floats();
            results.fill(f64::NEG_INFINITY);
            for_each_window_element(pool, operands[0].dims(), result, |x, y| results[y] = max(results[y], xs[x]));
        }
        ConvolutionOp::MaxPool2dGrad(pool) => {
            let (xs, dy) = (operands[0].floats(), operands[1]);
            let mut first: Vec<Option<usize>> = vec![None; dy.floats().len()];
            for_each_window_element(pool, result, dy.dims(), |x, y| {
                let beaten = first[y].is_none_or(|best| xs[x] > xs[best] || xs[x].is_nan() && !xs[best].is_nan());
                if beaten {
                    first[y] = Some(x);
                }
            });
            for (&best, dy) in first.iter().zip(dy.floats()) {
                // A window that contains only padding has no largest element.
                if let Some(x) = best {
                    results[x] += dy;
                }
            }
        }
        ConvolutionOp::SumPool2dGrad { pool, size: _ } => {
            let dy = operands[0];
            let ys = dy.floats();
            for_each_window_element(pool, result, dy.dims(), |x, y| results[x] += ys[y]);
        }
    }
    InterpElements::Float(results)
}

/// Calls `visit` with positions in input, filter and output of every product in a convolution of `x [n, c, h, w]` with
/// `filter [o, c/groups, kh, kw]` to `y [n, o, oh, ow]`.
fn for_each_product(
    conv: &Conv2d,
    x: &[usize],
    filter: &[usize],
    y: &[usize],
    mut visit: impl FnMut(usize, usize, usize),
) {
    let (channels, group_out) = (filter[1], y[1] / conv.groups);
    let window = Pool2d {
        window: [filter[2], filter[3]],
        padding: conv.padding,
        strides: conv.strides,
        dilations: conv.dilations,
    };
    let (x_plane, f_plane, y_plane) = (x[2] * x[3], filter[2] * filter[3], y[2] * y[3]);
    for batch in 0..y[0] {
        for out in 0..y[1] {
            for channel in 0..channels {
                let x_start = (batch * x[1] + out / group_out * channels + channel) * x_plane;
                let f_start = (out * channels + channel) * f_plane;
                let y_start = (batch * y[1] + out) * y_plane;
                for_each_tap(&window, [x[2], x[3]], [y[2], y[3]], |x, f, y| {
                    visit(x_start + x, f_start + f, y_start + y)
                });
            }
        }
    }
}

/// Calls `visit` with positions in input and output of every element of every pooling window.
fn for_each_window_element(pool: &Pool2d, x: &[usize], y: &[usize], mut visit: impl FnMut(usize, usize)) {
    for image in 0..x[0] * x[1] {
        let (x_start, y_start) = (image * x[2] * x[3], image * y[2] * y[3]);
        for_each_tap(pool, [x[2], x[3]], [y[2], y[3]], |x, _, y| visit(x_start + x, y_start + y));
    }
}

/// Calls `visit` with positions in input, window and output of every tap inside the input, within one image plane.
/// Windows and taps are in row-major order.
fn for_each_tap(pool: &Pool2d, input: [usize; 2], output: [usize; 2], mut visit: impl FnMut(usize, usize, usize)) {
    let place = |axis: usize, out: usize, tap: usize| {
        let padded = out * pool.strides[axis] + tap * pool.dilations[axis];
        padded.checked_sub(pool.padding[2 * axis]).filter(|&place| place < input[axis])
    };
    for row in 0..output[0] {
        for column in 0..output[1] {
            for tap_row in 0..pool.window[0] {
                for tap_column in 0..pool.window[1] {
                    if let (Some(h), Some(w)) = (place(0, row, tap_row), place(1, column, tap_column)) {
                        visit(h * input[1] + w, tap_row * pool.window[1] + tap_column, row * output[1] + column);
                    }
                }
            }
        }
    }
}
