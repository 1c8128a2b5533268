//! Activations: element by element, and the exponential over its sum. Shape and data type unchanged; `float16` is computed
//! in `float32` and rounded once.

use super::f32_compute::in_f32;
use super::{check_float, fill_like, scale_by, shift_by};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;

type ActivationResult = Result<NodeId, GraphError>;

/// `max(x, 0)`, with slope 0 at 0; NaN stays NaN. Float or integer. Source: WebNN `relu`.
///
/// # Errors
/// `UnknownNode`; `TooManyNodes`.
pub fn relu(g: &mut GraphBuilder, x: NodeId) -> ActivationResult {
    let zero = fill_like(g, x, 0.0)?;
    let negative = g.less_or_equal(x, zero)?;
    g.select(negative, zero, x)
}

/// `x` where positive, else `alpha * x`. Float. Source: WebNN `leakyRelu`.
///
/// # Errors
/// `DType`; `UnknownNode`; `TooManyNodes`.
pub fn leaky_relu(g: &mut GraphBuilder, x: NodeId, alpha: f64) -> ActivationResult {
    check_float(g, "leaky-relu", "input", x)?;
    let zero = fill_like(g, x, 0.0)?;
    let negative = g.less_or_equal(x, zero)?;
    let scaled = scale_by(g, x, alpha)?;
    g.select(negative, scaled, x)
}

/// `x` where positive, else `slope * x`, with `slope` broadcast. Float or signed integer. Source: WebNN `prelu`.
///
/// # Errors
/// `DTypesDiffer`; `Broadcast`; `UnknownNode`; `TooManyNodes`.
pub fn prelu(g: &mut GraphBuilder, x: NodeId, slope: NodeId) -> ActivationResult {
    let zero = fill_like(g, x, 0.0)?;
    let negative = g.less_or_equal(x, zero)?;
    let scaled = g.mul(x, slope)?;
    g.select(negative, scaled, x)
}

/// `alpha * x + beta`. Float. Source: WebNN `linear`.
///
/// # Errors
/// `DType`; `UnknownNode`; `TooManyNodes`.
pub fn linear_function(g: &mut GraphBuilder, x: NodeId, alpha: f64, beta: f64) -> ActivationResult {
    check_float(g, "linear", "input", x)?;
    in_f32(g, x, |g, x| {
        let scaled = scale_by(g, x, alpha)?;
        shift_by(g, scaled, beta)
    })
}

/// `x` where positive, else `alpha * (e^x - 1)`. Float. Source: WebNN `elu`.
///
/// # Errors
/// `DType`; `UnknownNode`; `TooManyNodes`.
pub fn elu(g: &mut GraphBuilder, x: NodeId, alpha: f64) -> ActivationResult {
    check_float(g, "elu", "input", x)?;
    in_f32(g, x, |g, x| {
        let zero = fill_like(g, x, 0.0)?;
        let negative = g.less_or_equal(x, zero)?;
        // The exponential of a large positive element would be infinite, and its unused gradient 0 * inf.
        let bounded = g.select(negative, x, zero)?;
        let power = g.exp(bounded)?;
        let curve = shift_by(g, power, -1.0)?;
        let curve = scale_by(g, curve, alpha)?;
        g.select(negative, curve, x)
    })
}

/// `1 / (1 + e^-x)`, computed as `e^x / (1 + e^x)` for negative `x`: near 0 it keeps its digits, and it overflows neither
/// forward nor backward. Float. Source: WebNN `sigmoid`.
///
/// # Errors
/// `DType`; `UnknownNode`; `TooManyNodes`.
pub fn sigmoid(g: &mut GraphBuilder, x: NodeId) -> ActivationResult {
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

/// `ln(sigmoid(x))`, accurate for large negative `x`. Float.
///
/// # Errors
/// `DType`; `UnknownNode`; `TooManyNodes`.
pub fn log_sigmoid(g: &mut GraphBuilder, x: NodeId) -> ActivationResult {
    let negative = g.neg(x)?;
    let cost = softplus(g, negative)?;
    g.neg(cost)
}

/// `clamp(alpha * x + beta, 0, 1)`. Float. Source: WebNN `hardSigmoid` (0.2 and 0.5 by default there).
///
/// # Errors
/// `DType`; `UnknownNode`; `TooManyNodes`.
pub fn hard_sigmoid(g: &mut GraphBuilder, x: NodeId, alpha: f64, beta: f64) -> ActivationResult {
    check_float(g, "hard-sigmoid", "input", x)?;
    in_f32(g, x, |g, x| {
        let line = linear_function(g, x, alpha, beta)?;
        clamp(g, line, Some(0.0), Some(1.0))
    })
}

/// `x * clamp(x/6 + 1/2, 0, 1)`. Float. Source: WebNN `hardSwish`.
///
/// # Errors
/// `DType`; `UnknownNode`; `TooManyNodes`.
pub fn hard_swish(g: &mut GraphBuilder, x: NodeId) -> ActivationResult {
    in_f32(g, x, |g, x| {
        let gate = hard_sigmoid(g, x, 1.0 / 6.0, 0.5)?;
        g.mul(x, gate)
    })
}

/// `x * sigmoid(x)` (swish). Float. Source: Elfwing et al., arXiv:1702.03118.
///
/// # Errors
/// `DType`; `UnknownNode`; `TooManyNodes`.
pub fn silu(g: &mut GraphBuilder, x: NodeId) -> ActivationResult {
    in_f32(g, x, |g, x| {
        let gate = sigmoid(g, x)?;
        g.mul(x, gate)
    })
}

/// `x * (1 + erf(x / sqrt 2)) / 2`. Float. Source: WebNN `gelu`; Hendrycks and Gimpel, arXiv:1606.08415.
///
/// # Errors
/// `DType`; `UnknownNode`; `TooManyNodes`.
pub fn gelu(g: &mut GraphBuilder, x: NodeId) -> ActivationResult {
    in_f32(g, x, |g, x| {
        let scaled = scale_by(g, x, std::f64::consts::FRAC_1_SQRT_2)?;
        let curve = g.erf(scaled)?;
        let curve = shift_by(g, curve, 1.0)?;
        let half = scale_by(g, x, 0.5)?;
        g.mul(half, curve)
    })
}

/// `ln(1 + e^x)`, computed as `max(x, 0) + ln(1 + e^-|x|)`, which does not overflow. Float. Source: WebNN `softplus`.
///
/// # Errors
/// `DType`; `UnknownNode`; `TooManyNodes`.
pub fn softplus(g: &mut GraphBuilder, x: NodeId) -> ActivationResult {
    in_f32(g, x, |g, x| {
        let magnitude = g.abs(x)?;
        let negative = g.neg(magnitude)?;
        let power = g.exp(negative)?;
        let sum = shift_by(g, power, 1.0)?;
        let curve = g.log(sum)?;
        // At 0 this maximum's slope is 1/2, as the function's is there; the magnitude's is 0.
        let zero = fill_like(g, x, 0.0)?;
        let line = g.max(x, zero)?;
        g.add(line, curve)
    })
}

/// `x / (1 + |x|)`. Float. Source: WebNN `softsign`.
///
/// # Errors
/// `DType`; `UnknownNode`; `TooManyNodes`.
pub fn softsign(g: &mut GraphBuilder, x: NodeId) -> ActivationResult {
    check_float(g, "softsign", "input", x)?;
    in_f32(g, x, |g, x| {
        let magnitude = g.abs(x)?;
        let sum = shift_by(g, magnitude, 1.0)?;
        g.div(x, sum)
    })
}

/// Limited to `[min, max]`; `None` is no limit; NaN stays NaN. Float or integer. Source: WebNN `clamp`.
///
/// # Errors
/// `ScalarRange` for a limit that the data type cannot hold; `UnknownNode`; `TooManyNodes`.
pub fn clamp(g: &mut GraphBuilder, x: NodeId, min: Option<f64>, max: Option<f64>) -> ActivationResult {
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

/// Tangent of radians. Float. Source: WebNN `tan`.
///
/// # Errors
/// `DType`; `UnknownOperand`; `TooManyNodes`.
pub fn tan(g: &mut GraphBuilder, x: NodeId) -> ActivationResult {
    in_f32(g, x, |g, x| {
        let (sin, cos) = (g.sin(x)?, g.cos(x)?);
        g.div(sin, cos)
    })
}

/// `e^x` over its sum along `axis`; the largest element is subtracted first. Float. Source: WebNN `softmax`.
///
/// # Errors
/// `DType`; `AxisOutOfRange`; `UnknownOperand`; `TooManyNodes`.
pub fn softmax(g: &mut GraphBuilder, x: NodeId, axis: usize) -> ActivationResult {
    in_f32(g, x, |g, x| {
        let centred = subtract_max(g, x, axis)?;
        let power = g.exp(centred)?;
        let sum = g.reduce_sum(power, &[axis], true)?;
        g.div(power, sum)
    })
}

/// `ln(softmax(x))` along `axis`, without the underflow of its parts. Float.
///
/// # Errors
/// `DType`; `AxisOutOfRange`; `UnknownOperand`; `TooManyNodes`.
pub fn log_softmax(g: &mut GraphBuilder, x: NodeId, axis: usize) -> ActivationResult {
    in_f32(g, x, |g, x| {
        let centred = subtract_max(g, x, axis)?;
        let power = g.exp(centred)?;
        let sum = g.reduce_sum(power, &[axis], true)?;
        let log = g.log(sum)?;
        g.sub(centred, log)
    })
}

/// `x` less its largest along `axis`. The result of a softmax does not depend on what is subtracted, so no gradient
/// needs to flow through the maximum.
pub(super) fn subtract_max(g: &mut GraphBuilder, x: NodeId, axis: usize) -> ActivationResult {
    let largest = g.reduce_max(x, &[axis], true)?;
    let largest = g.stop_gradient(largest)?;
    g.sub(x, largest)
}
