//! Reductions composed of sums. `axes` in any order, distinct; reduced axes stay with size 1 if `keep`, else are dropped.

use super::f32_compute::in_f32;
use super::{check_float, fill_like};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;

type ReduceResult = Result<NodeId, GraphError>;

/// Mean over `axes`; of nothing: NaN. Float, unchanged. Source: WebNN `reduceMean`.
///
/// Shape: `[b, n, d]`, axes `[1]` -> `[b, 1, d]` with `keep`, else `[b, d]`.
///
/// # Errors
/// `DType`; `AxisOutOfRange`; `AxesUnsorted` for an axis named twice; `UnknownNode`; `TooManyNodes`.
pub fn reduce_mean(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> ReduceResult {
    check_float(g, "reduce-mean", "input", x)?;
    in_f32(g, x, |g, x| {
        let sum = g.reduce_sum(x, axes, keep)?;
        let shape = &g.descriptor_of(x)?.shape;
        let count: usize = axes.iter().map(|&axis| shape[axis]).product();
        let count = fill_like(g, sum, count as f64)?;
        g.div(sum, count)
    })
}

/// Sum of magnitudes. Float or signed integer. Source: WebNN `reduceL1`.
///
/// # Errors
/// `DType`; `AxisOutOfRange`; `AxesUnsorted`; `UnknownNode`; `TooManyNodes`.
pub fn reduce_l1(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> ReduceResult {
    let magnitudes = if is_unsigned(g, x)? { x } else { g.abs(x)? };
    g.reduce_sum(magnitudes, axes, keep)
}

/// Square root of the sum of squares; its gradient at zero is taken as 0. Float. Source: WebNN `reduceL2`.
///
/// # Errors
/// `DType`; `AxisOutOfRange`; `AxesUnsorted`; `UnknownNode`; `TooManyNodes`.
pub fn reduce_l2(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> ReduceResult {
    check_float(g, "reduce-l2", "input", x)?;
    in_f32(g, x, |g, x| {
        let sum = reduce_sum_square(g, x, axes, keep)?;
        safe_sqrt(g, sum)
    })
}

/// Square root of what is not negative; its gradient at zero is taken as 0.
pub(super) fn safe_sqrt(g: &mut GraphBuilder, sum: NodeId) -> ReduceResult {
    let (zero, one) = (fill_like(g, sum, 0.0)?, fill_like(g, sum, 1.0)?);
    let nothing = g.equal(sum, zero)?;
    let positive = g.select(nothing, one, sum)?;
    let root = g.sqrt(positive)?;
    g.select(nothing, zero, root)
}

/// Logarithm of the sum. Float. Source: WebNN `reduceLogSum`.
///
/// # Errors
/// `DType`; `AxisOutOfRange`; `AxesUnsorted`; `UnknownNode`; `TooManyNodes`.
pub fn reduce_log_sum(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> ReduceResult {
    in_f32(g, x, |g, x| {
        let sum = g.reduce_sum(x, axes, keep)?;
        g.log(sum)
    })
}

/// Logarithm of the sum of exponentials, with the largest element subtracted first; of nothing: -inf. Float.
/// Source: WebNN `reduceLogSumExp`.
///
/// # Errors
/// `DType`; `AxisOutOfRange`; `AxesUnsorted`; `UnknownNode`; `TooManyNodes`.
pub fn reduce_log_sum_exp(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> ReduceResult {
    check_float(g, "reduce-log-sum-exp", "input", x)?;
    in_f32(g, x, |g, x| log_sum_exp(g, x, axes, keep))
}

fn log_sum_exp(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> ReduceResult {
    let largest = g.reduce_max(x, axes, true)?;
    // An infinite largest element must not be subtracted from itself.
    let magnitude = g.abs(largest)?;
    let (zero, infinity) = (fill_like(g, largest, 0.0)?, fill_like(g, largest, f64::INFINITY)?);
    let finite = g.less(magnitude, infinity)?;
    let offset = g.select(finite, largest, zero)?;
    let offset = g.stop_gradient(offset)?;
    let centred = g.sub(x, offset)?;
    let power = g.exp(centred)?;
    let sum = g.reduce_sum(power, axes, keep)?;
    let log = g.log(sum)?;
    let shape = g.descriptor_of(log)?.shape.clone();
    let offset = g.reshape(offset, &shape)?;
    g.add(log, offset)
}

/// Sum of squares. Source: WebNN `reduceSumSquare`.
///
/// # Errors
/// `AxisOutOfRange`; `AxesUnsorted`; `UnknownNode`; `TooManyNodes`.
pub fn reduce_sum_square(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> ReduceResult {
    in_f32(g, x, |g, x| {
        let squares = g.mul(x, x)?;
        g.reduce_sum(squares, axes, keep)
    })
}

fn is_unsigned(g: &GraphBuilder, x: NodeId) -> Result<bool, GraphError> {
    let dtype = g.descriptor_of(x)?.dtype;
    Ok(!dtype.is_float() && !dtype.is_signed_integer())
}
