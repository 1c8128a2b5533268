//! Sliding windows. Each operator visits the same pairs of input and output places and differs in what it adds where.

use super::binary::max;
use super::value::{Elements, Value};
use crate::Shape;
use crate::op::{Conv2d, Convolution, Pool, Pool2d};

pub(super) fn evaluate(op: &Convolution, operands: &[&Value], result: &Shape) -> Elements {
    let mut results = vec![0.0; result.elements()];
    match op {
        Convolution::Conv2d(conv) => {
            let (x, filter) = (operands[0], operands[1]);
            let (xs, fs) = (x.floats(), filter.floats());
            taps(conv, x.dims(), filter.dims(), result, |x, f, y| results[y] += xs[x] * fs[f]);
        }
        Convolution::Conv2dInputGrad { conv, size: _ } => {
            let (dy, filter) = (operands[0], operands[1]);
            let (ys, fs) = (dy.floats(), filter.floats());
            taps(conv, result, filter.dims(), dy.dims(), |x, f, y| results[x] += ys[y] * fs[f]);
        }
        Convolution::Conv2dFilterGrad { conv, window: _ } => {
            let (x, dy) = (operands[0], operands[1]);
            let (xs, ys) = (x.floats(), dy.floats());
            taps(conv, x.dims(), result, dy.dims(), |x, f, y| results[f] += xs[x] * ys[y]);
        }
        Convolution::Pool2d { kind: Pool::Sum, pool } => {
            let xs = operands[0].floats();
            windows(pool, operands[0].dims(), result, |x, y| results[y] += xs[x]);
        }
        Convolution::Pool2d { kind: Pool::Max, pool } => {
            let xs = operands[0].floats();
            results.fill(f64::NEG_INFINITY);
            windows(pool, operands[0].dims(), result, |x, y| results[y] = max(results[y], xs[x]));
        }
        Convolution::MaxPool2dGrad(pool) => {
            let (xs, dy) = (operands[0].floats(), operands[1]);
            let mut first: Vec<Option<usize>> = vec![None; dy.floats().len()];
            windows(pool, result, dy.dims(), |x, y| {
                let beaten = first[y].is_none_or(|best| xs[x] > xs[best] || xs[x].is_nan() && !xs[best].is_nan());
                if beaten {
                    first[y] = Some(x);
                }
            });
            for (&best, dy) in first.iter().zip(dy.floats()) {
                // A window whose every tap is padding has no largest element.
                if let Some(x) = best {
                    results[x] += dy;
                }
            }
        }
        Convolution::SumPool2dGrad { pool, size: _ } => {
            let dy = operands[0];
            let ys = dy.floats();
            windows(pool, result, dy.dims(), |x, y| results[x] += ys[y]);
        }
    }
    Elements::Float(results)
}

/// Calls `visit` with positions in input, filter and output of every product in a convolution of `x [n, c, h, w]` with
/// `filter [o, c/groups, kh, kw]` to `y [n, o, oh, ow]`.
fn taps(conv: &Conv2d, x: &[usize], filter: &[usize], y: &[usize], mut visit: impl FnMut(usize, usize, usize)) {
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
                plane(&window, [x[2], x[3]], [y[2], y[3]], |x, f, y| visit(x_start + x, f_start + f, y_start + y));
            }
        }
    }
}

/// Calls `visit` with positions in input and output of every element of every pooling window.
fn windows(pool: &Pool2d, x: &[usize], y: &[usize], mut visit: impl FnMut(usize, usize)) {
    for image in 0..x[0] * x[1] {
        let (x_start, y_start) = (image * x[2] * x[3], image * y[2] * y[3]);
        plane(pool, [x[2], x[3]], [y[2], y[3]], |x, _, y| visit(x_start + x, y_start + y));
    }
}

/// Within one image plane: positions in input, window and output of every tap that lies inside the input, windows and
/// taps in row-major order.
fn plane(pool: &Pool2d, input: [usize; 2], output: [usize; 2], mut visit: impl FnMut(usize, usize, usize)) {
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
