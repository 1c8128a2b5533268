//! Adjoints of element-wise operators of two operands, and of selection.

use super::AdjointStep;
use super::emit::{binary, boolean_as_float, dtype_of, fill_like, mul, scale, select as choose, unary};
use crate::NodeId;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{BinaryOp, UnaryOp};

pub(super) fn adjoint(
    g: &mut GraphBuilder,
    op: BinaryOp,
    step: &AdjointStep,
    operand: usize,
) -> Result<Option<NodeId>, GraphError> {
    let (a, b, dy) = (step.inputs[0], step.inputs[1], step.output_adjoint);
    let first = operand == 0;
    let adjoint = match op {
        BinaryOp::Add => dy,
        BinaryOp::Sub if first => dy,
        BinaryOp::Sub => unary(g, UnaryOp::Neg, dy)?,
        BinaryOp::Mul => mul(g, dy, if first { b } else { a })?,
        BinaryOp::Div if first => binary(g, BinaryOp::Div, dy, b)?,
        BinaryOp::Div => {
            let product = mul(g, dy, step.output)?;
            let quotient = binary(g, BinaryOp::Div, product, b)?;
            unary(g, UnaryOp::Neg, quotient)?
        }
        BinaryOp::Pow if first => pow_base_adjoint(g, step)?,
        BinaryOp::Pow => pow_exponent_adjoint(g, step)?,
        BinaryOp::Max if first => max_adjoint(g, [b, a], dy)?,
        BinaryOp::Max => max_adjoint(g, [a, b], dy)?,
        BinaryOp::Min if first => max_adjoint(g, [a, b], dy)?,
        BinaryOp::Min => max_adjoint(g, [b, a], dy)?,
        BinaryOp::Equal
        | BinaryOp::Less
        | BinaryOp::LessOrEqual
        | BinaryOp::LogicalAnd
        | BinaryOp::LogicalOr
        | BinaryOp::LogicalXor => return Ok(None),
    };
    Ok(Some(adjoint))
}

/// Returns `dy * b * a^(b-1)`, and 0 if the exponent is 0, also at `a = 0`, where the formula would give 0 * inf.
fn pow_base_adjoint(g: &mut GraphBuilder, step: &AdjointStep) -> Result<NodeId, GraphError> {
    let (a, b, dy) = (step.inputs[0], step.inputs[1], step.output_adjoint);
    let (zero, one) = (fill_like(g, b, 0.0)?, fill_like(g, b, 1.0)?);
    let less = binary(g, BinaryOp::Sub, b, one)?;
    let power = binary(g, BinaryOp::Pow, a, less)?;
    let slope = mul(g, b, power)?;
    let constant = binary(g, BinaryOp::Equal, b, zero)?;
    let slope = choose(g, constant, zero, slope)?;
    mul(g, dy, slope)
}

/// Returns `dy * a^b * ln a`, and 0 if the base is 0 (the limit for positive exponents).
fn pow_exponent_adjoint(g: &mut GraphBuilder, step: &AdjointStep) -> Result<NodeId, GraphError> {
    let (a, dy) = (step.inputs[0], step.output_adjoint);
    let (zero, one) = (fill_like(g, a, 0.0)?, fill_like(g, a, 1.0)?);
    let at_zero = binary(g, BinaryOp::Equal, a, zero)?;
    let base = choose(g, at_zero, one, a)?;
    let log = unary(g, UnaryOp::Log, base)?;
    // At base 0, the zero logarithm alone is not enough, because a negative exponent makes the power infinite.
    let power = choose(g, at_zero, zero, step.output)?;
    let slope = mul(g, power, log)?;
    mul(g, dy, slope)
}

/// Returns `dy` if `low` is less than `high`, half of it if they are equal, and 0 otherwise.
fn max_adjoint(g: &mut GraphBuilder, [low, high]: [NodeId; 2], dy: NodeId) -> Result<NodeId, GraphError> {
    let dtype = dtype_of(g, dy);
    let less = binary(g, BinaryOp::Less, low, high)?;
    let less = boolean_as_float(g, less, dtype)?;
    let equal = binary(g, BinaryOp::Equal, low, high)?;
    let equal = boolean_as_float(g, equal, dtype)?;
    let half = scale(g, equal, 0.5)?;
    let share = binary(g, BinaryOp::Add, less, half)?;
    mul(g, dy, share)
}

/// Returns the adjoints of `condition ? a : b`.
pub(super) fn select_adjoint(
    g: &mut GraphBuilder,
    step: &AdjointStep,
    operand: usize,
) -> Result<Option<NodeId>, GraphError> {
    let (condition, dy) = (step.inputs[0], step.output_adjoint);
    if operand == 0 {
        return Ok(None);
    }
    let zero = fill_like(g, dy, 0.0)?;
    let [a, b] = if operand == 1 { [dy, zero] } else { [zero, dy] };
    choose(g, condition, a, b).map(Some)
}
