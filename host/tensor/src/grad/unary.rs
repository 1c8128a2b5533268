//! Adjoints of element-wise operators of one operand.

use super::AdjointStep;
use super::emit::{binary, dtype_of, fill_like, mul, scale, unary};
use crate::NodeId;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{BinaryOp, UnaryOp};

pub(super) fn adjoint(g: &mut GraphBuilder, op: UnaryOp, step: &AdjointStep) -> Result<Option<NodeId>, GraphError> {
    let (x, y, dy) = (step.inputs[0], step.output, step.output_adjoint);
    let dx = match op {
        UnaryOp::Neg => unary(g, UnaryOp::Neg, dy)?,
        UnaryOp::Abs => {
            let sign = unary(g, UnaryOp::Sign, x)?;
            mul(g, dy, sign)?
        }
        UnaryOp::Exp => mul(g, dy, y)?,
        UnaryOp::Log => binary(g, BinaryOp::Div, dy, x)?,
        UnaryOp::Sqrt => {
            let half = scale(g, dy, 0.5)?;
            binary(g, BinaryOp::Div, half, y)?
        }
        UnaryOp::Reciprocal => {
            let square = mul(g, y, y)?;
            let product = mul(g, dy, square)?;
            unary(g, UnaryOp::Neg, product)?
        }
        UnaryOp::Sin => {
            let cos = unary(g, UnaryOp::Cos, x)?;
            mul(g, dy, cos)?
        }
        UnaryOp::Cos => {
            let sin = unary(g, UnaryOp::Sin, x)?;
            let product = mul(g, dy, sin)?;
            unary(g, UnaryOp::Neg, product)?
        }
        UnaryOp::Tanh => {
            let square = mul(g, y, y)?;
            let one = fill_like(g, y, 1.0)?;
            let slope = binary(g, BinaryOp::Sub, one, square)?;
            mul(g, dy, slope)?
        }
        // erf' = 2/sqrt(pi) e^(-x^2)
        UnaryOp::Erf => {
            let square = mul(g, x, x)?;
            let negative = unary(g, UnaryOp::Neg, square)?;
            let bell = unary(g, UnaryOp::Exp, negative)?;
            let slope = scale(g, bell, std::f64::consts::FRAC_2_SQRT_PI)?;
            mul(g, dy, slope)?
        }
        UnaryOp::Cast(to) => {
            let from = dtype_of(g, x);
            if !from.is_float() || !to.is_float() {
                return Ok(None);
            }
            unary(g, UnaryOp::Cast(from), dy)?
        }
        UnaryOp::Sign
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::RoundEven
        | UnaryOp::LogicalNot
        | UnaryOp::StopGradient => {
            return Ok(None);
        }
    };
    Ok(Some(dx))
}
