//! Activations.

use super::{Outcome, one};
use crate::backend::Reduction;
use crate::call::Call;
use crate::elem::Elem;
use crate::error::Error;
use crate::graph::{Built, Graph};
use crate::value::{Constant, Value};

/// `yes` where `x > 0`, else `no`.
fn where_positive(g: &mut Graph, x: &Value, yes: &Value, no: &Value) -> Built {
    let positive = g.greater(x, &g.like(x, 0.0))?;
    g.select(&positive, yes, no)
}

/// `exp(min(x, 0)) - 1`, which cannot overflow where it is not used.
fn exp_minus_one(g: &mut Graph, x: &Value) -> Built {
    let bounded = g.min(x, &g.like(x, 0.0))?;
    let power = g.exp(&bounded)?;
    g.plus(&power, -1.0)
}

/// Elu, Celu, Selu: a line where positive, an exponential elsewhere.
pub(super) fn exponential(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let (alpha, gamma, inner) = match call.op {
        "Selu" => (call.float("alpha", 1.673_263_2), call.float("gamma", 1.050_701), 1.0),
        "Celu" => (call.float("alpha", 1.0), 1.0, call.float("alpha", 1.0)),
        _ => (call.float("alpha", 1.0), 1.0, 1.0),
    };
    let scaled = if inner == 1.0 { x.clone() } else { g.times(x, 1.0 / inner)? };
    let curve = exp_minus_one(g, &scaled)?;
    let curve = g.times(&curve, alpha * gamma)?;
    let line = if gamma == 1.0 { x.clone() } else { g.times(x, gamma)? };
    one(where_positive(g, x, &line, &curve))
}

/// LeakyRelu and ThresholdedRelu.
pub(super) fn rectified(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    if call.op == "ThresholdedRelu" {
        let above = g.greater(x, &g.like(x, call.float("alpha", 1.0)))?;
        return one(g.select(&above, x, &g.like(x, 0.0)));
    }
    let scaled = g.times(x, call.float("alpha", 0.01))?;
    one(where_positive(g, x, x, &scaled))
}

/// PRelu: the slope is an operand.
pub(super) fn prelu(g: &mut Graph, call: &Call) -> Outcome {
    let (x, slope) = (call.input(0)?, call.input(1)?);
    // Before version 7 one slope a channel was not aligned at the last axis.
    let slope = if call.opset < 7 && slope.rank() == 1 && x.rank() > 2 && slope.len() > 1 {
        let shape = [slope.shape(), &vec![1; x.rank() - 2]].concat();
        g.reshape(slope, &shape)?
    } else {
        slope.clone()
    };
    let scaled = g.mul(x, &slope)?;
    let negative = g.lesser(x, &g.like(x, 0.0))?;
    one(g.select(&negative, &scaled, x))
}

/// HardSigmoid and HardSwish.
pub(super) fn hard(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    if call.op == "HardSwish" {
        let gate = hard_sigmoid(g, x, 1.0 / 6.0, 0.5)?;
        return one(g.mul(x, &gate));
    }
    one(hard_sigmoid(g, x, call.float("alpha", 0.2), call.float("beta", 0.5)))
}

/// `clamp(alpha * x + beta, 0, 1)`.
pub(super) fn hard_sigmoid(g: &mut Graph, x: &Value, alpha: f64, beta: f64) -> Built {
    let scaled = g.times(x, alpha)?;
    let line = g.plus(&scaled, beta)?;
    g.clamp(&line, Some(0.0), Some(1.0))
}

/// Mish and Swish: the operand times a gate; SwiGLU multiplies a second operand. Source: ONNX SwiGLU-28.
pub(super) fn gated(g: &mut Graph, call: &Call) -> Outcome {
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
        let scaled = if alpha == 1.0 { x.clone() } else { g.times(x, alpha)? };
        g.sigmoid(&scaled)?
    };
    let gated = g.mul(x, &gate)?;
    one(if call.op == "SwiGLU" { g.mul(&gated, factor) } else { Ok(gated) })
}

/// Gelu, exact or by the hyperbolic tangent. Source: ONNX Gelu-20.
pub(super) fn gelu(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    if call.choice("approximate", &["none", "tanh"])? != "tanh" {
        return one(g.gelu(x));
    }
    let square = g.mul(x, x)?;
    let cube = g.mul(&square, x)?;
    let cube = g.times(&cube, 0.044_715)?;
    let inner = g.add(x, &cube)?;
    let inner = g.times(&inner, (2.0 / std::f64::consts::PI).sqrt())?;
    let curve = g.tanh(&inner)?;
    let gate = g.plus(&curve, 1.0)?;
    let gate = g.times(&gate, 0.5)?;
    one(g.mul(x, &gate))
}

/// Shrink: towards 0 by `bias`, and 0 within `lambd`.
pub(super) fn shrink(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let (bias, lambda) = (call.float("bias", 0.0), call.float("lambd", 0.5));
    let (lower, upper) = (g.plus(x, -bias)?, g.plus(x, bias)?);
    let above = g.greater(x, &g.like(x, lambda))?;
    let below = g.lesser(x, &g.like(x, -lambda))?;
    let outside = g.select(&below, &upper, &g.like(x, 0.0))?;
    one(g.select(&above, &lower, &outside))
}

/// Softmax, LogSoftmax, Hardmax. Before version 13 axes from `axis` on were one.
pub(super) fn softmax(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    if call.opset >= 13 {
        let axis = x.axis(call.int("axis", -1))?;
        return one(along(g, call.op, x, axis));
    }
    let axis = call.int("axis", 1);
    let axis = if axis == x.rank() as i64 { x.rank() } else { x.axis(axis)? };
    let (outer, inner) = (x.shape()[..axis].iter().product(), x.shape()[axis..].iter().product());
    let flat = g.reshape(x, &[outer, inner])?;
    let result = along(g, call.op, &flat, 1)?;
    one(g.reshape(&result, x.shape()))
}

fn along(g: &mut Graph, op: &str, x: &Value, axis: usize) -> Built {
    match op {
        "Softmax" => g.softmax(x, axis),
        "LogSoftmax" => log_softmax(g, x, axis),
        "Hardmax" => {
            let found = g.arg(true, x, axis)?;
            let places = g.iota(Elem::Int64, &[x.dim(axis)?], 0)?;
            let mut shape = vec![1; x.rank()];
            shape[axis] = x.dim(axis)?;
            let places = g.reshape(&places, &shape)?;
            let hit = g.equal(&found, &places)?;
            g.cast(&hit, x.elem())
        }
        other => Err(Error::unsupported(format!("operator {other}"))),
    }
}

/// The logarithm of the softmax, without overflow.
pub(super) fn log_softmax(g: &mut Graph, x: &Value, axis: usize) -> Built {
    let most = g.reduce(Reduction::Max, x, &[axis])?;
    let centred = g.sub(x, &most)?;
    let powers = g.exp(&centred)?;
    let sum = g.reduce(Reduction::Sum, &powers, &[axis])?;
    let log = g.log(&sum)?;
    g.sub(&centred, &log)
}

/// Inverse trigonometric and hyperbolic functions, composed.
pub(super) fn inverse(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    one(match call.op {
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
            g.times(&half, 2.0)
        }
        "Sinh" => sinh(g, x),
        "Cosh" => {
            let (up, down) = (g.exp(x)?, g.neg(x)?);
            let down = g.exp(&down)?;
            let sum = g.add(&up, &down)?;
            g.times(&sum, 0.5)
        }
        "Asinh" => asinh(g, x),
        "Acosh" => {
            // ln(1 + t + sqrt(t (t + 2))) for t = x - 1.
            let t = g.plus(x, -1.0)?;
            let more = g.plus(&t, 2.0)?;
            let product = g.mul(&t, &more)?;
            let root = g.sqrt(&product)?;
            let sum = g.add(&t, &root)?;
            log_one_plus(g, &sum)
        }
        _ => {
            // atanh x = sign(x) ln(1 + 2 |x| / (1 - |x|)) / 2.
            let (size, sign) = (g.abs(x)?, g.sign(x)?);
            let rest = g.neg(&size)?;
            let rest = g.plus(&rest, 1.0)?;
            let ratio = g.div(&size, &rest)?;
            let ratio = g.times(&ratio, 2.0)?;
            let log = log_one_plus(g, &ratio)?;
            let half = g.times(&log, 0.5)?;
            g.mul(&half, &sign)
        }
    })
}

/// `1 - x` and `1 + x`.
fn complement(g: &mut Graph, x: &Value) -> crate::error::Result<(Value, Value)> {
    let negative = g.neg(x)?;
    Ok((g.plus(&negative, 1.0)?, g.plus(x, 1.0)?))
}

/// `a + x (b + x (c + ...))`.
fn polynomial(g: &mut Graph, x: &Value, coefficients: &[f64]) -> Built {
    let mut result: Value = Constant::scalar(x.elem(), *coefficients.last().unwrap_or(&0.0)).into();
    for &coefficient in coefficients.iter().rev().skip(1) {
        let product = g.mul(&result, x)?;
        result = g.plus(&product, coefficient)?;
    }
    Ok(result)
}

/// To single precision: the argument is brought below tan(pi/8). Source: S. Moshier, Cephes, `atanf`.
fn arc_tangent(g: &mut Graph, x: &Value) -> Built {
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};
    let (size, sign) = (g.abs(x)?, g.sign(x)?);
    let (one, zero) = (g.like(x, 1.0), g.like(x, 0.0));
    let large = g.greater(&size, &one)?;
    let inverse = g.reciprocal(&size)?;
    let below_one = g.select(&large, &inverse, &size)?;
    let middle = g.greater(&below_one, &g.like(x, 0.414_213_562_373_095))?;
    let (less, more) = (g.plus(&below_one, -1.0)?, g.plus(&below_one, 1.0)?);
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
    let offset = g.select(&middle, &g.like(x, FRAC_PI_4), &zero)?;
    let angle = g.add(&small, &offset)?;
    let negated = g.neg(&angle)?;
    let complement = g.plus(&negated, FRAC_PI_2)?;
    let angle = g.select(&large, &complement, &angle)?;
    g.mul(&angle, &sign)
}

/// A series near 0, where the difference of exponentials would cancel.
fn sinh(g: &mut Graph, x: &Value) -> Built {
    let (up, down) = (g.exp(x)?, g.neg(x)?);
    let down = g.exp(&down)?;
    let difference = g.sub(&up, &down)?;
    let far = g.times(&difference, 0.5)?;
    let square = g.mul(x, x)?;
    let series = polynomial(g, &square, &[1.0, 1.0 / 6.0, 1.0 / 120.0, 1.0 / 5040.0, 1.0 / 362_880.0])?;
    let near = g.mul(x, &series)?;
    let size = g.abs(x)?;
    let is_near = g.lesser(&size, &g.like(x, 1.0))?;
    g.select(&is_near, &near, &far)
}

/// `sign(x) ln(1 + |x| + x^2 / (1 + sqrt(x^2 + 1)))`, and `ln 2|x|` where the square would overflow.
fn asinh(g: &mut Graph, x: &Value) -> Built {
    let (size, sign) = (g.abs(x)?, g.sign(x)?);
    let bounded = g.min(&size, &g.like(x, 1e9))?;
    let square = g.mul(&bounded, &bounded)?;
    let root = g.plus(&square, 1.0)?;
    let root = g.sqrt(&root)?;
    let below = g.plus(&root, 1.0)?;
    let part = g.div(&square, &below)?;
    let sum = g.add(&bounded, &part)?;
    let near = log_one_plus(g, &sum)?;
    let far = g.log(&size)?;
    let far = g.plus(&far, std::f64::consts::LN_2)?;
    let is_far = g.greater(&size, &g.like(x, 1e9))?;
    let log = g.select(&is_far, &far, &near)?;
    g.mul(&log, &sign)
}

/// `ln(1 + x)`, accurate near 0: the rounding error of `1 + x` is divided out again. Source: Goldberg, 1991, theorem 4.
fn log_one_plus(g: &mut Graph, x: &Value) -> Built {
    let rounded = g.plus(x, 1.0)?;
    let log = g.log(&rounded)?;
    let kept = g.plus(&rounded, -1.0)?;
    let ratio = g.div(x, &kept)?;
    let product = g.mul(&log, &ratio)?;
    let lost = g.equal(&rounded, &g.like(x, 1.0))?;
    let corrected = g.select(&lost, x, &product)?;
    // Of infinity the correction would be infinity over infinity.
    let infinite = g.equal(&log, &g.like(x, f64::INFINITY))?;
    g.select(&infinite, &log, &corrected)
}
