//! Rules of quantization: conversions between floats and small integers.

use super::{RuleResult, single_result};
use crate::backend::ReductionOperator;
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::GraphValue;

/// Rounds to the nearest integer, ties to even, adds the zero point and clamps to the zero point's type.
pub(super) fn round_to_zero_point(g: &mut FoldingGraph, x: &GraphValue, zero: &GraphValue) -> ValueResult {
    let whole = g.round_even(x)?;
    let wide = g.cast(zero, ElementType::Float32)?;
    let whole = g.cast(&whole, ElementType::Float32)?;
    let moved = g.add(&whole, &wide)?;
    let [least, most] = zero.elem().range();
    let limited = g.clamp(&moved, Some(least), Some(most))?;
    g.cast(&limited, zero.elem())
}

/// Returns `a * b / c`, in single precision.
pub(super) fn ratio(g: &mut FoldingGraph, a: &GraphValue, b: &GraphValue, c: &GraphValue) -> ValueResult {
    let (a, b, c) =
        (g.cast(a, ElementType::Float32)?, g.cast(b, ElementType::Float32)?, g.cast(c, ElementType::Float32)?);
    let product = g.mul(&a, &b)?;
    g.div(&product, &c)
}

/// Shapes a scale or zero point so that it broadcasts over `x`: one number, one per index along `axis`, or one per
/// block of `block_size`.
fn broadcast_parameter(
    g: &mut FoldingGraph,
    value: &GraphValue,
    x: &GraphValue,
    axis: i64,
    block: usize,
) -> ValueResult {
    if value.len() == 1 && block == 0 {
        return g.reshape(value, &[]);
    }
    let axis = x.axis(axis)?;
    if block > 0 {
        if value.rank() != x.rank() {
            return Err(Error::invalid(format!("blocks of {:?} in {:?}", value.shape(), x.shape())));
        }
        let shape = value.shape();
        let apart = g.unsqueeze(value, axis + 1)?;
        let repeated = [&shape[..=axis], &[block], &shape[axis + 1..]].concat();
        let repeated = g.expand(&apart, &repeated)?;
        let joined = [&shape[..axis], &[shape[axis] * block], &shape[axis + 1..]].concat();
        let joined = g.reshape(&repeated, &joined)?;
        // The last block can be smaller.
        return g.narrow(&joined, axis, 0, x.dim(axis)?);
    }
    let mut shape = vec![1; x.rank()];
    shape[axis] = value.len();
    g.reshape(value, &shape)
}

fn block_size(call: &OperatorCall) -> Result<usize> {
    crate::value::checked_size(call.int("block_size", 0), "block_size")
}

/// Builds QuantizeLinear.
pub(super) fn quantize(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (x, scale) = (call.input(0)?, call.input(1)?);
    if let Some(other) = call.element_type("precision")?.filter(|&precision| precision != ElementType::Float32) {
        return Err(Error::unsupported(format!("QuantizeLinear with a division of precision {other:?}")));
    }
    let axis = call.int("axis", 1);
    let zero = match call.optional(2) {
        Some(zero) => zero.clone(),
        None => {
            let elem = call.element_type("output_dtype")?.unwrap_or(ElementType::Uint8);
            g.fill(elem, scale.shape(), 0.0)?
        }
    };
    let (scale, zero) = (
        broadcast_parameter(g, scale, x, axis, block_size(call)?)?,
        broadcast_parameter(g, &zero, x, axis, block_size(call)?)?,
    );
    let (x, scale) = (g.cast(x, ElementType::Float32)?, g.cast(&scale, ElementType::Float32)?);
    let scaled = g.div(&x, &scale)?;
    single_result(round_to_zero_point(g, &scaled, &zero))
}

/// Builds DequantizeLinear.
pub(super) fn dequantize(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (x, scale) = (call.input(0)?, call.input(1)?);
    let axis = call.int("axis", 1);
    let elem = call.element_type("output_dtype")?.unwrap_or(scale.elem());
    let wide = g.cast(x, ElementType::Float32)?;
    let centred = match call.optional(2) {
        Some(zero) => {
            let zero = broadcast_parameter(g, zero, x, axis, block_size(call)?)?;
            let zero = g.cast(&zero, ElementType::Float32)?;
            g.sub(&wide, &zero)?
        }
        None => wide,
    };
    let scale = broadcast_parameter(g, scale, x, axis, block_size(call)?)?;
    let scale = g.cast(&scale, ElementType::Float32)?;
    let y = g.mul(&centred, &scale)?;
    single_result(g.cast(&y, elem))
}

/// Builds DynamicQuantizeLinear: quantizes to `uint8` with the range of the operand, extended to include 0.
pub(super) fn dynamic_quantize(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axes: Vec<usize> = (0..x.rank()).collect();
    let (least, most) = (g.reduce(ReductionOperator::Min, x, &axes)?, g.reduce(ReductionOperator::Max, x, &axes)?);
    let (least, most) = (g.reshape(&least, &[])?, g.reshape(&most, &[])?);
    let zero = g.scalar_like(x, 0.0);
    let (least, most) = (g.min(&least, &zero)?, g.max(&most, &zero)?);
    let range = g.sub(&most, &least)?;
    let scale = g.mul_scalar(&range, 1.0 / 255.0)?;
    let point = g.neg(&least)?;
    let point = g.div(&point, &scale)?;
    let point = g.clamp(&point, Some(0.0), Some(255.0))?;
    let point = g.round_even(&point)?;
    let point = g.cast(&point, ElementType::Uint8)?;
    let scaled = g.div(x, &scale)?;
    let y = round_to_zero_point(g, &scaled, &point)?;
    Ok(vec![y, scale, point])
}
