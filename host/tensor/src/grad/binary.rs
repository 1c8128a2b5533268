//! Adjoints of element-wise operators of two operands, and of the choice between two.

use super::Step;
use super::emit::{binary, dtype_of, like, mul, scale, select as choose, truth, unary};
use crate::NodeId;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{Binary, Unary};

pub(super) fn adjoint(
    g: &mut GraphBuilder,
    op: Binary,
    step: &Step,
    operand: usize,
) -> Result<Option<NodeId>, GraphError> {
    let (a, b, dy) = (step.inputs[0], step.inputs[1], step.dy);
    let first = operand == 0;
    let adjoint = match op {
        Binary::Add => dy,
        Binary::Sub if first => dy,
        Binary::Sub => unary(g, Unary::Neg, dy)?,
        Binary::Mul => mul(g, dy, if first { b } else { a })?,
        Binary::Div if first => binary(g, Binary::Div, dy, b)?,
        Binary::Div => {
            let product = mul(g, dy, step.output)?;
            let quotient = binary(g, Binary::Div, product, b)?;
            unary(g, Unary::Neg, quotient)?
        }
        Binary::Pow if first => power_base(g, step)?,
        Binary::Pow => power_exponent(g, step)?,
        Binary::Max if first => larger(g, [b, a], dy)?,
        Binary::Max => larger(g, [a, b], dy)?,
        Binary::Min if first => larger(g, [a, b], dy)?,
        Binary::Min => larger(g, [b, a], dy)?,
        Binary::Equal
        | Binary::Less
        | Binary::LessOrEqual
        | Binary::LogicalAnd
        | Binary::LogicalOr
        | Binary::LogicalXor => return Ok(None),
    };
    Ok(Some(adjoint))
}

/// `dy * b * a^(b-1)`, and 0 where the exponent is 0, also at `a = 0`, where the formula would give 0 * inf.
fn power_base(g: &mut GraphBuilder, step: &Step) -> Result<NodeId, GraphError> {
    let (a, b, dy) = (step.inputs[0], step.inputs[1], step.dy);
    let (zero, one) = (like(g, b, 0.0)?, like(g, b, 1.0)?);
    let less = binary(g, Binary::Sub, b, one)?;
    let power = binary(g, Binary::Pow, a, less)?;
    let slope = mul(g, b, power)?;
    let constant = binary(g, Binary::Equal, b, zero)?;
    let slope = choose(g, constant, zero, slope)?;
    mul(g, dy, slope)
}

/// `dy * a^b * ln a`, and 0 where the base is 0 (the limit for positive exponents).
fn power_exponent(g: &mut GraphBuilder, step: &Step) -> Result<NodeId, GraphError> {
    let (a, dy) = (step.inputs[0], step.dy);
    let (zero, one) = (like(g, a, 0.0)?, like(g, a, 1.0)?);
    let at_zero = binary(g, Binary::Equal, a, zero)?;
    let base = choose(g, at_zero, one, a)?;
    let log = unary(g, Unary::Log, base)?;
    // The logarithm of 1 is 0, but at base 0 a negative exponent makes the power infinite.
    let power = choose(g, at_zero, zero, step.output)?;
    let slope = mul(g, power, log)?;
    mul(g, dy, slope)
}

/// `dy` where the first is less than the second, half of it where they are equal.
fn larger(g: &mut GraphBuilder, [low, high]: [NodeId; 2], dy: NodeId) -> Result<NodeId, GraphError> {
    let dtype = dtype_of(g, dy);
    let less = binary(g, Binary::Less, low, high)?;
    let less = truth(g, less, dtype)?;
    let equal = binary(g, Binary::Equal, low, high)?;
    let equal = truth(g, equal, dtype)?;
    let half = scale(g, equal, 0.5)?;
    let share = binary(g, Binary::Add, less, half)?;
    mul(g, dy, share)
}

/// Adjoints of `condition ? a : b`.
pub(super) fn select(g: &mut GraphBuilder, step: &Step, operand: usize) -> Result<Option<NodeId>, GraphError> {
    let (condition, dy) = (step.inputs[0], step.dy);
    if operand == 0 {
        return Ok(None);
    }
    let zero = like(g, dy, 0.0)?;
    let [a, b] = if operand == 1 { [dy, zero] } else { [zero, dy] };
    choose(g, condition, a, b).map(Some)
}
