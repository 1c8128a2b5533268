//! Inference of element-wise operators of one operand.

use super::operands;
use crate::error::GraphError;
use crate::op::Unary;
use crate::{DType, Descriptor};

pub(super) fn infer(unary: Unary, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = unary.name();
    let [input] = operands(op, inputs)?;
    let dtype = input.dtype;
    let result = match unary {
        Unary::Neg | Unary::Abs | Unary::Sign => {
            if !dtype.is_float() && !dtype.is_signed_integer() {
                let expected = "a float or signed integer type";
                return Err(GraphError::DType { op, operand: "input", expected, got: dtype });
            }
            dtype
        }
        Unary::Exp
        | Unary::Log
        | Unary::Sqrt
        | Unary::Reciprocal
        | Unary::Sin
        | Unary::Cos
        | Unary::Tanh
        | Unary::Erf
        | Unary::Floor
        | Unary::Ceil
        | Unary::RoundEven => {
            super::float(op, "input", input)?;
            dtype
        }
        Unary::LogicalNot => {
            if dtype != DType::U8 {
                return Err(GraphError::DType { op, operand: "input", expected: "uint8", got: dtype });
            }
            dtype
        }
        Unary::StopGradient => dtype,
        Unary::Cast(to) => to,
    };
    Ok(Descriptor::new(result, input.shape.clone()))
}
