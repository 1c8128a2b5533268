//! Adjoints of element-wise operators of one operand.

use super::Step;
use super::emit::{binary, dtype_of, like, mul, scale, unary};
use crate::NodeId;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{Binary, Unary};

pub(super) fn adjoint(g: &mut GraphBuilder, op: Unary, step: &Step) -> Result<Option<NodeId>, GraphError> {
    let (x, y, dy) = (step.inputs[0], step.output, step.dy);
    let dx = match op {
        Unary::Neg => unary(g, Unary::Neg, dy)?,
        Unary::Abs => {
            let sign = unary(g, Unary::Sign, x)?;
            mul(g, dy, sign)?
        }
        Unary::Exp => mul(g, dy, y)?,
        Unary::Log => binary(g, Binary::Div, dy, x)?,
        Unary::Sqrt => {
            let half = scale(g, dy, 0.5)?;
            binary(g, Binary::Div, half, y)?
        }
        Unary::Reciprocal => {
            let square = mul(g, y, y)?;
            let product = mul(g, dy, square)?;
            unary(g, Unary::Neg, product)?
        }
        Unary::Sin => {
            let cos = unary(g, Unary::Cos, x)?;
            mul(g, dy, cos)?
        }
        Unary::Cos => {
            let sin = unary(g, Unary::Sin, x)?;
            let product = mul(g, dy, sin)?;
            unary(g, Unary::Neg, product)?
        }
        Unary::Tanh => {
            let square = mul(g, y, y)?;
            let one = like(g, y, 1.0)?;
            let slope = binary(g, Binary::Sub, one, square)?;
            mul(g, dy, slope)?
        }
        // erf' = 2/sqrt(pi) e^(-x^2)
        Unary::Erf => {
            let square = mul(g, x, x)?;
            let negative = unary(g, Unary::Neg, square)?;
            let bell = unary(g, Unary::Exp, negative)?;
            let slope = scale(g, bell, std::f64::consts::FRAC_2_SQRT_PI)?;
            mul(g, dy, slope)?
        }
        Unary::Cast(to) => {
            let from = dtype_of(g, x);
            if !from.is_float() || !to.is_float() {
                return Ok(None);
            }
            unary(g, Unary::Cast(from), dy)?
        }
        Unary::Sign | Unary::Floor | Unary::Ceil | Unary::RoundEven | Unary::LogicalNot | Unary::StopGradient => {
            return Ok(None);
        }
    };
    Ok(Some(dx))
}
