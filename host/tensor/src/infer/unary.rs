//! Inference of element-wise operators of one operand.

use super::expect_operands;
use crate::error::GraphError;
use crate::op::UnaryOp;
use crate::{DType, Descriptor};

pub(super) fn infer(unary: UnaryOp, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = unary.name();
    let [input] = expect_operands(op, inputs)?;
    let dtype = input.dtype;
    let result = match unary {
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign => {
            if !dtype.is_float() && !dtype.is_signed_integer() {
                let expected = "a float or signed integer type";
                return Err(GraphError::DType { op, operand: "input", expected, got: dtype });
            }
            dtype
        }
        UnaryOp::Exp
        | UnaryOp::Log
        | UnaryOp::Sqrt
        | UnaryOp::Reciprocal
        | UnaryOp::Sin
        | UnaryOp::Cos
        | UnaryOp::Tanh
        | UnaryOp::Erf
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::RoundEven => {
            super::check_float(op, "input", input)?;
            dtype
        }
        UnaryOp::LogicalNot => {
            if dtype != DType::U8 {
                return Err(GraphError::DType { op, operand: "input", expected: "uint8", got: dtype });
            }
            dtype
        }
        UnaryOp::StopGradient => dtype,
        UnaryOp::Cast(to) => to,
    };
    Ok(Descriptor::new(result, input.shape.clone()))
}
