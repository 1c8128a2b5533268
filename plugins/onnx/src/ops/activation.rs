//! Rules of the activation functions.

use super::{RuleResult, single_result};
use crate::backend::ReductionOperator;
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::Error;
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::{ConstantTensor, GraphValue};

/// Returns `yes` where `x > 0`, else `no`.
fn where_positive(g: &mut FoldingGraph, x: &GraphValue, yes: &GraphValue, no: &GraphValue) -> ValueResult {
    let positive = g.greater(x, &g.scalar_like(x, 0.0))?;
    g.select(&positive, yes, no)
}

/// Returns `exp(min(x, 0)) - 1`, which cannot overflow for the positive `x` whose result is not used.
fn expm1(g: &mut FoldingGraph, x: &GraphValue) -> ValueResult {
    let bounded = g.min(x, &g.scalar_like(x, 0.0))?;
    let power = g.exp(&bounded)?;
    g.add_scalar(&power, -1.0)
}

/// Builds Elu, Celu and Selu: linear for positive numbers, exponential for the others.
pub(super) fn elu(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let (alpha, gamma, inner) = match call.op {
        "Selu" => (call.float("alpha", 1.673_263_2), call.float("gamma", 1.050_701), 1.0),
        "Celu" => (call.float("alpha", 1.0), 1.0, call.float("alpha", 1.0)),
        _ => (call.float("alpha", 1.0), 1.0, 1.0),
    };
    let scaled = if inner == 1.0 { x.clone() } else { g.mul_scalar(x, 1.0 / inner)? };
    let curve = expm1(g, &scaled)?;
    let curve = g.mul_scalar(&curve, alpha * gamma)?;
    let line = if gamma == 1.0 { x.clone() } else { g.mul_scalar(x, gamma)? };
    single_result(where_positive(g, x, &line, &curve))
}

/// Builds LeakyRelu and ThresholdedRelu.
pub(super) fn leaky_relu(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    if call.op == "ThresholdedRelu" {
        let above = g.greater(x, &g.scalar_like(x, call.float("alpha", 1.0)))?;
        return single_result(g.select(&above, x, &g.scalar_like(x, 0.0)));
    }
    let scaled = g.mul_scalar(x, call.float("alpha", 0.01))?;
    single_result(where_positive(g, x, x, &scaled))
}

/// Builds PRelu, whose slope is an operand.
pub(super) fn prelu(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (x, slope) = (call.input(0)?, call.input(1)?);
    // Before version 7, a slope per channel was aligned at axis 1 instead of the last axis.
    let slope = if call.opset < 7 && slope.rank() == 1 && x.rank() > 2 && slope.len() > 1 {
        let shape = [slope.shape(), &vec![1; x.rank() - 2]].concat();
        g.reshape(slope, &shape)?
    } else {
        slope.clone()
    };
    let scaled = g.mul(x, &slope)?;
    let negative = g.lesser(x, &g.scalar_like(x, 0.0))?;
    single_result(g.select(&negative, &scaled, x))
}

/// Builds HardSigmoid and HardSwish.
pub(super) fn hard_sigmoid_or_swish(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    if call.op == "HardSwish" {
        let gate = hard_sigmoid(g, x, 1.0 / 6.0, 0.5)?;
        return single_result(g.mul(x, &gate));
    }
    single_result(hard_sigmoid(g, x, call.float("alpha", 0.2), call.float("beta", 0.5)))
}

/// Returns `clamp(alpha * x + beta, 0, 1)`.
pub(super) fn hard_sigmoid(g: &mut FoldingGraph, x: &GraphValue, alpha: f64, beta: f64) -> ValueResult {
    let scaled = g.mul_scalar(x, alpha)?;
    let line = g.add_scalar(&scaled, beta)?;
    g.clamp(&line, Some(0.0), Some(1.0))
}

/// Builds Mish, Swish and SwiGLU: the operand times a gate. SwiGLU multiplies a second operand too. Source: ONNX
/// SwiGLU-28.
pub(super) fn swish(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let factor = if call.op == "SwiGLU" { call.input(1)? } else { x };
    if factor.shape() != x.shape() {
        return Err(Error::invalid(format!(
            "SwiGLU takes two operands of one shape, not {:?} and {:?}",
            x.shape(),
            factor.shape()
        )));
    }
    let gate = if call.op == "Mish" {
        let soft = g.softplus(x)?;
        g.tanh(&soft)?
    } else {
        let alpha = call.float("alpha", 1.0);
        let scaled = if alpha == 1.0 { x.clone() } else { g.mul_scalar(x, alpha)? };
        g.sigmoid(&scaled)?
    };
    let gated = g.mul(x, &gate)?;
    single_result(if call.op == "SwiGLU" { g.mul(&gated, factor) } else { Ok(gated) })
}

/// Builds Gelu, exact or with the tanh approximation. Source: ONNX Gelu-20.
pub(super) fn gelu(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    if call.choice("approximate", &["none", "tanh"])? != "tanh" {
        return single_result(g.gelu(x));
    }
    let square = g.mul(x, x)?;
    let cube = g.mul(&square, x)?;
    let cube = g.mul_scalar(&cube, 0.044_715)?;
    let inner = g.add(x, &cube)?;
    let inner = g.mul_scalar(&inner, (2.0 / std::f64::consts::PI).sqrt())?;
    let curve = g.tanh(&inner)?;
    let gate = g.add_scalar(&curve, 1.0)?;
    let gate = g.mul_scalar(&gate, 0.5)?;
    single_result(g.mul(x, &gate))
}

/// Builds Shrink: moves numbers towards 0 by `bias`, and sets those within `lambd` to 0.
pub(super) fn shrink(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let (bias, lambda) = (call.float("bias", 0.0), call.float("lambd", 0.5));
    let (lower, upper) = (g.add_scalar(x, -bias)?, g.add_scalar(x, bias)?);
    let above = g.greater(x, &g.scalar_like(x, lambda))?;
    let below = g.lesser(x, &g.scalar_like(x, -lambda))?;
    let outside = g.select(&below, &upper, &g.scalar_like(x, 0.0))?;
    single_result(g.select(&above, &lower, &outside))
}

/// Builds Softmax, LogSoftmax and Hardmax. Before version 13, all axes from `axis` on were treated as one.
pub(super) fn softmax(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    if call.opset >= 13 {
        let axis = x.axis(call.int("axis", -1))?;
        return single_result(softmax_along_axis(g, call.op, x, axis));
    }
    let axis = call.int("axis", 1);
    let axis = if axis == x.rank() as i64 { x.rank() } else { x.axis(axis)? };
    let (outer, inner) = (x.shape()[..axis].iter().product(), x.shape()[axis..].iter().product());
    let flat = g.reshape(x, &[outer, inner])?;
    let result = softmax_along_axis(g, call.op, &flat, 1)?;
    single_result(g.reshape(&result, x.shape()))
}

fn softmax_along_axis(g: &mut FoldingGraph, op: &str, x: &GraphValue, axis: usize) -> ValueResult {
    match op {
        "Softmax" => g.softmax(x, axis),
        "LogSoftmax" => log_softmax(g, x, axis),
        "Hardmax" => {
            let found = g.arg_extremum(true, x, axis)?;
            let places = g.iota(ElementType::Int64, &[x.dim(axis)?], 0)?;
            let mut shape = vec![1; x.rank()];
            shape[axis] = x.dim(axis)?;
            let places = g.reshape(&places, &shape)?;
            let hit = g.equal(&found, &places)?;
            g.cast(&hit, x.elem())
        }
        other => Err(Error::unsupported(format!("operator {other}"))),
    }
}

/// Returns the logarithm of the softmax, without overflow.
pub(super) fn log_softmax(g: &mut FoldingGraph, x: &GraphValue, axis: usize) -> ValueResult {
    let most = g.reduce(ReductionOperator::Max, x, &[axis])?;
    let centred = g.sub(x, &most)?;
    let powers = g.exp(&centred)?;
    let sum = g.reduce(ReductionOperator::Sum, &powers, &[axis])?;
    let log = g.log(&sum)?;
    g.sub(&centred, &log)
}

/// Builds the inverse trigonometric and hyperbolic functions from other operators.
pub(super) fn inverse_function(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    single_result(match call.op {
        "Atan" => arc_tangent(g, x),
        "Asin" => {
            // asin x = atan(x / sqrt((1 - x)(1 + x))).
            let (low, high) = complement(g, x)?;
            let product = g.mul(&low, &high)?;
            let root = g.sqrt(&product)?;
            let ratio = g.div(x, &root)?;
            arc_tangent(g, &ratio)
        }
        "Acos" => {
            // acos x = 2 atan(sqrt((1 - x) / (1 + x))).
            let (low, high) = complement(g, x)?;
            let ratio = g.div(&low, &high)?;
            let root = g.sqrt(&ratio)?;
            let half = arc_tangent(g, &root)?;
            g.mul_scalar(&half, 2.0)
        }
        "Sinh" => sinh(g, x),
        "Cosh" => {
            let (up, down) = (g.exp(x)?, g.neg(x)?);
            let down = g.exp(&down)?;
            let sum = g.add(&up, &down)?;
            g.mul_scalar(&sum, 0.5)
        }
        "Asinh" => asinh(g, x),
        "Acosh" => {
            // ln(1 + t + sqrt(t (t + 2))) for t = x - 1.
            let t = g.add_scalar(x, -1.0)?;
            let more = g.add_scalar(&t, 2.0)?;
            let product = g.mul(&t, &more)?;
            let root = g.sqrt(&product)?;
            let sum = g.add(&t, &root)?;
            log1p(g, &sum)
        }
        _ => {
            // atanh x = sign(x) ln(1 + 2 |x| / (1 - |x|)) / 2.
            let (size, sign) = (g.abs(x)?, g.sign(x)?);
            let rest = g.neg(&size)?;
            let rest = g.add_scalar(&rest, 1.0)?;
            let ratio = g.div(&size, &rest)?;
            let ratio = g.mul_scalar(&ratio, 2.0)?;
            let log = log1p(g, &ratio)?;
            let half = g.mul_scalar(&log, 0.5)?;
            g.mul(&half, &sign)
        }
    })
}

/// Returns `1 - x` and `1 + x`.
fn complement(g: &mut FoldingGraph, x: &GraphValue) -> crate::error::Result<(GraphValue, GraphValue)> {
    let negative = g.neg(x)?;
    Ok((g.add_scalar(&negative, 1.0)?, g.add_scalar(x, 1.0)?))
}

/// Returns the polynomial `a + x (b + x (c + ...))`.
fn polynomial(g: &mut FoldingGraph, x: &GraphValue, coefficients: &[f64]) -> ValueResult {
    let mut result: GraphValue = ConstantTensor::scalar(x.elem(), *coefficients.last().unwrap_or(&0.0)).into();
    for &coefficient in coefficients.iter().rev().skip(1) {
        let product = g.mul(&result, x)?;
        result = g.add_scalar(&product, coefficient)?;
    }
    Ok(result)
}

/// Returns the arc tangent to single precision. The argument is reduced below tan(pi/8). Source: S. Moshier, Cephes,
/// `atanf`.
fn arc_tangent(g: &mut FoldingGraph, x: &GraphValue) -> ValueResult {
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};
    let (size, sign) = (g.abs(x)?, g.sign(x)?);
    let (one, zero) = (g.scalar_like(x, 1.0), g.scalar_like(x, 0.0));
    let large = g.greater(&size, &one)?;
    let inverse = g.reciprocal(&size)?;
    let below_one = g.select(&large, &inverse, &size)?;
    let middle = g.greater(&below_one, &g.scalar_like(x, 0.414_213_562_373_095))?;
    let (less, more) = (g.add_scalar(&below_one, -1.0)?, g.add_scalar(&below_one, 1.0)?);
    let turned = g.div(&less, &more)?;
    let t = g.select(&middle, &turned, &below_one)?;
    let square = g.mul(&t, &t)?;
    let series = polynomial(
        g,
        &square,
        &[-3.333_294_915_39e-1, 1.997_771_064_78e-1, -1.387_768_560_32e-1, 8.053_744_495_38e-2],
    )?;
    let series = g.mul(&series, &square)?;
    let series = g.mul(&series, &t)?;
    let small = g.add(&t, &series)?;
    let offset = g.select(&middle, &g.scalar_like(x, FRAC_PI_4), &zero)?;
    let angle = g.add(&small, &offset)?;
    let negated = g.neg(&angle)?;
    let complement = g.add_scalar(&negated, FRAC_PI_2)?;
    let angle = g.select(&large, &complement, &angle)?;
    g.mul(&angle, &sign)
}

/// Returns the hyperbolic sine. Near 0 it uses a series, because the difference of exponentials would cancel.
fn sinh(g: &mut FoldingGraph, x: &GraphValue) -> ValueResult {
    let (up, down) = (g.exp(x)?, g.neg(x)?);
    let down = g.exp(&down)?;
    let difference = g.sub(&up, &down)?;
    let far = g.mul_scalar(&difference, 0.5)?;
    let square = g.mul(x, x)?;
    let series = polynomial(g, &square, &[1.0, 1.0 / 6.0, 1.0 / 120.0, 1.0 / 5040.0, 1.0 / 362_880.0])?;
    let near = g.mul(x, &series)?;
    let size = g.abs(x)?;
    let is_near = g.lesser(&size, &g.scalar_like(x, 1.0))?;
    g.select(&is_near, &near, &far)
}

/// Returns `sign(x) ln(1 + |x| + x^2 / (1 + sqrt(x^2 + 1)))`, or `ln 2|x|` where the square would overflow.
fn asinh(g: &mut FoldingGraph, x: &GraphValue) -> ValueResult {
    let (size, sign) = (g.abs(x)?, g.sign(x)?);
    let bounded = g.min(&size, &g.scalar_like(x, 1e9))?;
    let square = g.mul(&bounded, &bounded)?;
    let root = g.add_scalar(&square, 1.0)?;
    let root = g.sqrt(&root)?;
    let below = g.add_scalar(&root, 1.0)?;
    let part = g.div(&square, &below)?;
    let sum = g.add(&bounded, &part)?;
    let near = log1p(g, &sum)?;
    let far = g.log(&size)?;
    let far = g.add_scalar(&far, std::f64::consts::LN_2)?;
    let is_far = g.greater(&size, &g.scalar_like(x, 1e9))?;
    let log = g.select(&is_far, &far, &near)?;
    g.mul(&log, &sign)
}

/// Returns `ln(1 + x)`, accurate near 0: the rounding error of `1 + x` is divided out again. Source: Goldberg, 1991,
/// theorem 4.
fn log1p(g: &mut FoldingGraph, x: &GraphValue) -> ValueResult {
    let rounded = g.add_scalar(x, 1.0)?;
    let log = g.log(&rounded)?;
    let rounded_x = g.add_scalar(&rounded, -1.0)?;
    let ratio = g.div(x, &rounded_x)?;
    let product = g.mul(&log, &ratio)?;
    let lost = g.equal(&rounded, &g.scalar_like(x, 1.0))?;
    let corrected = g.select(&lost, x, &product)?;
    // For infinity, the correction would be infinity divided by infinity.
    let infinite = g.equal(&log, &g.scalar_like(x, f64::INFINITY))?;
    g.select(&infinite, &log, &corrected)
}
