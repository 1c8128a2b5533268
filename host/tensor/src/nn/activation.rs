//! Activations: element-wise functions, and softmax. Shape and data type unchanged; `float16` is computed in `float32`
//! and rounded once.

use super::f32_compute::in_f32;
use super::{check_float, fill_like, scale_by, shift_by};
use crate::builder::GraphBuilder;
use crate::error::NodeResult;
use crate::graph::NodeId;

/// Returns `max(x, 0)`, with slope 0 at 0; NaN stays NaN. Float or integer. Source: WebNN `relu`.
///
/// # Errors
/// Returns `UnknownNode` or `TooManyNodes`.
pub fn relu(g: &mut GraphBuilder, x: NodeId) -> NodeResult {
    let zero = fill_like(g, x, 0.0)?;
    let negative = g.less_or_equal(x, zero)?;
    g.select(negative, zero, x)
}

/// Returns `x` if positive, else `alpha * x`. Float. Source: WebNN `leakyRelu`.
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`.
pub fn leaky_relu(g: &mut GraphBuilder, x: NodeId, alpha: f64) -> NodeResult {
    check_float(g, "leaky-relu", "input", x)?;
    let zero = fill_like(g, x, 0.0)?;
    let negative = g.less_or_equal(x, zero)?;
    let scaled = scale_by(g, x, alpha)?;
    g.select(negative, scaled, x)
}

/// Returns `x` if positive, else `slope * x`, with `slope` broadcast. Float or signed integer. Source: WebNN `prelu`.
///
/// # Errors
/// Returns `DTypesDiffer`, `Broadcast`, `UnknownNode` or `TooManyNodes`.
pub fn prelu(g: &mut GraphBuilder, x: NodeId, slope: NodeId) -> NodeResult {
    let zero = fill_like(g, x, 0.0)?;
    let negative = g.less_or_equal(x, zero)?;
    let scaled = g.mul(x, slope)?;
    g.select(negative, scaled, x)
}

/// Returns `alpha * x + beta`. Float. Source: WebNN `linear`.
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`.
pub fn linear_function(g: &mut GraphBuilder, x: NodeId, alpha: f64, beta: f64) -> NodeResult {
    check_float(g, "linear", "input", x)?;
    in_f32(g, x, |g, x| {
        let scaled = scale_by(g, x, alpha)?;
        shift_by(g, scaled, beta)
    })
}

/// Returns `x` if positive, else `alpha * (e^x - 1)`. Float. Source: WebNN `elu`.
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`.
pub fn elu(g: &mut GraphBuilder, x: NodeId, alpha: f64) -> NodeResult {
    check_float(g, "elu", "input", x)?;
    in_f32(g, x, |g, x| {
        let zero = fill_like(g, x, 0.0)?;
        let negative = g.less_or_equal(x, zero)?;
        // The exponential of a large positive element would be infinite, and the unused branch's gradient 0 * inf.
        let bounded = g.select(negative, x, zero)?;
        let power = g.exp(bounded)?;
        let curve = shift_by(g, power, -1.0)?;
        let curve = scale_by(g, curve, alpha)?;
        g.select(negative, curve, x)
    })
}

/// Returns `1 / (1 + e^-x)`. For negative `x` it is computed as `e^x / (1 + e^x)`, which keeps digits near 0 and
/// overflows neither forward nor backward. Float. Source: WebNN `sigmoid`.
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`.
pub fn sigmoid(g: &mut GraphBuilder, x: NodeId) -> NodeResult {
    in_f32(g, x, |g, x| {
        let (zero, one) = (fill_like(g, x, 0.0)?, fill_like(g, x, 1.0)?);
        let negative = g.less_or_equal(x, zero)?;
        let opposite = g.neg(x)?;
        let exponent = g.select(negative, x, opposite)?;
        let power = g.exp(exponent)?;
        let share = g.select(negative, power, one)?;
        let whole = g.add(power, one)?;
        g.div(share, whole)
    })
}

/// Returns `ln(sigmoid(x))`, accurate for large negative `x`. Float.
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`.
pub fn log_sigmoid(g: &mut GraphBuilder, x: NodeId) -> NodeResult {
    let negative = g.neg(x)?;
    let cost = softplus(g, negative)?;
    g.neg(cost)
}

/// Returns `clamp(alpha * x + beta, 0, 1)`. Float. Source: WebNN `hardSigmoid` (0.2 and 0.5 by default there).
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`.
pub fn hard_sigmoid(g: &mut GraphBuilder, x: NodeId, alpha: f64, beta: f64) -> NodeResult {
    check_float(g, "hard-sigmoid", "input", x)?;
    in_f32(g, x, |g, x| {
        let line = linear_function(g, x, alpha, beta)?;
        clamp(g, line, Some(0.0), Some(1.0))
    })
}

/// Returns `x * clamp(x/6 + 1/2, 0, 1)`. Float. Source: WebNN `hardSwish`.
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`.
pub fn hard_swish(g: &mut GraphBuilder, x: NodeId) -> NodeResult {
    in_f32(g, x, |g, x| {
        let gate = hard_sigmoid(g, x, 1.0 / 6.0, 0.5)?;
        g.mul(x, gate)
    })
}

/// Returns `x * sigmoid(x)` (swish). Float. Source: Elfwing et al., arXiv:1702.03118.
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`.
pub fn silu(g: &mut GraphBuilder, x: NodeId) -> NodeResult {
    in_f32(g, x, |g, x| {
        let gate = sigmoid(g, x)?;
        g.mul(x, gate)
    })
}

/// Returns `x * (1 + erf(x / sqrt 2)) / 2`. Float. Source: WebNN `gelu`; Hendrycks and Gimpel, arXiv:1606.08415.
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`.
pub fn gelu(g: &mut GraphBuilder, x: NodeId) -> NodeResult {
    in_f32(g, x, |g, x| {
        let scaled = scale_by(g, x, std::f64::consts::FRAC_1_SQRT_2)?;
        let curve = g.erf(scaled)?;
        let curve = shift_by(g, curve, 1.0)?;
        let half = scale_by(g, x, 0.5)?;
        g.mul(half, curve)
    })
}

/// Returns `ln(1 + e^x)`, computed as `max(x, 0) + ln(1 + e^-|x|)`, which does not overflow. Float. Source: WebNN
/// `softplus`.
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`.
pub fn softplus(g: &mut GraphBuilder, x: NodeId) -> NodeResult {
    in_f32(g, x, |g, x| {
        let magnitude = g.abs(x)?;
        let negative = g.neg(magnitude)?;
        let power = g.exp(negative)?;
        let sum = shift_by(g, power, 1.0)?;
        let curve = g.log(sum)?;
        // At 0 the slope of this maximum is 1/2, which is the softplus slope; the slope of the magnitude is 0.
        let zero = fill_like(g, x, 0.0)?;
        let line = g.max(x, zero)?;
        g.add(line, curve)
    })
}

/// Returns `x / (1 + |x|)`. Float. Source: WebNN `softsign`.
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`.
pub fn softsign(g: &mut GraphBuilder, x: NodeId) -> NodeResult {
    check_float(g, "softsign", "input", x)?;
    in_f32(g, x, |g, x| {
        let magnitude = g.abs(x)?;
        let sum = shift_by(g, magnitude, 1.0)?;
        g.div(x, sum)
    })
}

/// Limits `x` to `[min, max]`; `None` means no limit; NaN stays NaN. Float or integer. Source: WebNN `clamp`.
///
/// # Errors
/// Returns `UnknownNode` or `TooManyNodes`; `ScalarRange` for a limit that the data type cannot hold.
pub fn clamp(g: &mut GraphBuilder, x: NodeId, min: Option<f64>, max: Option<f64>) -> NodeResult {
    let mut limited = x;
    if let Some(min) = min {
        let low = fill_like(g, x, min)?;
        limited = g.max(limited, low)?;
    }
    if let Some(max) = max {
        let high = fill_like(g, x, max)?;
        limited = g.min(limited, high)?;
    }
    Ok(limited)
}

/// Returns the tangent of radians. Float. Source: WebNN `tan`.
///
/// # Errors
/// Returns `DType`, `UnknownOperand` or `TooManyNodes`.
pub fn tan(g: &mut GraphBuilder, x: NodeId) -> NodeResult {
    in_f32(g, x, |g, x| {
        let (sin, cos) = (g.sin(x)?, g.cos(x)?);
        g.div(sin, cos)
    })
}

/// Returns the softmax along `axis`: `e^x` divided by its sum, computed after subtracting the largest element. Float.
/// Source: WebNN `softmax`.
///
/// # Errors
/// Returns `DType`, `AxisOutOfRange`, `UnknownOperand` or `TooManyNodes`.
pub fn softmax(g: &mut GraphBuilder, x: NodeId, axis: usize) -> NodeResult {
    in_f32(g, x, |g, x| {
        let centred = subtract_max(g, x, axis)?;
        let power = g.exp(centred)?;
        let sum = g.reduce_sum(power, &[axis], true)?;
        g.div(power, sum)
    })
}

/// Returns `ln(softmax(x))` along `axis`, without the underflow of computing softmax first. Float.
///
/// # Errors
/// Returns `DType`, `AxisOutOfRange`, `UnknownOperand` or `TooManyNodes`.
pub fn log_softmax(g: &mut GraphBuilder, x: NodeId, axis: usize) -> NodeResult {
    in_f32(g, x, |g, x| {
        let centred = subtract_max(g, x, axis)?;
        let power = g.exp(centred)?;
        let sum = g.reduce_sum(power, &[axis], true)?;
        let log = g.log(sum)?;
        g.sub(centred, log)
    })
}

/// Returns `x` minus its largest element along `axis`. The result of a softmax does not depend on the subtracted
/// number, so no gradient has to flow through the maximum.
pub(super) fn subtract_max(g: &mut GraphBuilder, x: NodeId, axis: usize) -> NodeResult {
    let largest = g.reduce_max(x, &[axis], true)?;
    let largest = g.stop_gradient(largest)?;
    g.sub(x, largest)
}
