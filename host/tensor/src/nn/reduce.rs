//! Reductions composed of sums. `axes` in any order, distinct. Reduced axes stay with size 1 if `keep`, else are
//! dropped.

use super::f32_compute::in_f32;
use super::{check_float, fill_like};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::error::NodeResult;
use crate::graph::NodeId;

/// Returns the mean over `axes`; NaN for zero elements. Float, unchanged. Source: WebNN `reduceMean`.
///
/// Shape: `[b, n, d]`, axes `[1]` -> `[b, 1, d]` with `keep`, else `[b, d]`.
///
/// # Errors
/// Returns `DType`, `AxisOutOfRange`, `UnknownNode` or `TooManyNodes`; `AxesUnsorted` for an axis named twice.
pub fn reduce_mean(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> NodeResult {
    check_float(g, "reduce-mean", "input", x)?;
    in_f32(g, x, |g, x| {
        let sum = g.reduce_sum(x, axes, keep)?;
        let shape = &g.descriptor_of(x)?.shape;
        let count: usize = axes.iter().map(|&axis| shape[axis]).product();
        let count = fill_like(g, sum, count as f64)?;
        g.div(sum, count)
    })
}

/// Returns the sum of magnitudes. Float or signed integer. Source: WebNN `reduceL1`.
///
/// # Errors
/// Returns `DType`, `AxisOutOfRange`, `AxesUnsorted`, `UnknownNode` or `TooManyNodes`.
pub fn reduce_l1(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> NodeResult {
    let magnitudes = if is_unsigned(g, x)? { x } else { g.abs(x)? };
    g.reduce_sum(magnitudes, axes, keep)
}

/// Returns the square root of the sum of squares; its gradient at zero is defined as 0. Float. Source: WebNN
/// `reduceL2`.
///
/// # Errors
/// Returns `DType`, `AxisOutOfRange`, `AxesUnsorted`, `UnknownNode` or `TooManyNodes`.
pub fn reduce_l2(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> NodeResult {
    check_float(g, "reduce-l2", "input", x)?;
    in_f32(g, x, |g, x| {
        let sum = reduce_sum_square(g, x, axes, keep)?;
        safe_sqrt(g, sum)
    })
}

/// Returns the square root of a non-negative number; its gradient at zero is defined as 0.
pub(super) fn safe_sqrt(g: &mut GraphBuilder, sum: NodeId) -> NodeResult {
    let (zero, one) = (fill_like(g, sum, 0.0)?, fill_like(g, sum, 1.0)?);
    let nothing = g.equal(sum, zero)?;
    let positive = g.select(nothing, one, sum)?;
    let root = g.sqrt(positive)?;
    g.select(nothing, zero, root)
}

/// Returns the logarithm of the sum. Float. Source: WebNN `reduceLogSum`.
///
/// # Errors
/// Returns `DType`, `AxisOutOfRange`, `AxesUnsorted`, `UnknownNode` or `TooManyNodes`.
pub fn reduce_log_sum(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> NodeResult {
    in_f32(g, x, |g, x| {
        let sum = g.reduce_sum(x, axes, keep)?;
        g.log(sum)
    })
}

/// Returns the logarithm of the sum of exponentials, computed after subtracting the largest element; -inf for zero
/// elements. Float. Source: WebNN `reduceLogSumExp`.
///
/// # Errors
/// Returns `DType`, `AxisOutOfRange`, `AxesUnsorted`, `UnknownNode` or `TooManyNodes`.
pub fn reduce_log_sum_exp(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> NodeResult {
    check_float(g, "reduce-log-sum-exp", "input", x)?;
    in_f32(g, x, |g, x| log_sum_exp(g, x, axes, keep))
}

fn log_sum_exp(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> NodeResult {
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

/// Returns the sum of squares. Source: WebNN `reduceSumSquare`.
///
/// # Errors
/// Returns `AxisOutOfRange`, `AxesUnsorted`, `UnknownNode` or `TooManyNodes`.
pub fn reduce_sum_square(g: &mut GraphBuilder, x: NodeId, axes: &[usize], keep: bool) -> NodeResult {
    in_f32(g, x, |g, x| {
        let squares = g.mul(x, x)?;
        g.reduce_sum(squares, axes, keep)
    })
}

fn is_unsigned(g: &GraphBuilder, x: NodeId) -> Result<bool, GraphError> {
    let dtype = g.descriptor_of(x)?.dtype;
    Ok(!dtype.is_float() && !dtype.is_signed_integer())
}
