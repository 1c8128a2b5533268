//! Inference of element-wise operators of two operands.

use super::{check_same_descriptor, expect_operands};
use crate::error::GraphError;
use crate::op::BinaryOp;
use crate::{DType, Descriptor};

pub(super) fn infer(binary: BinaryOp, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = binary.name();
    let [a, b] = expect_operands(op, inputs)?;
    check_same_descriptor(op, a, b)?;
    let dtype = match binary {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Max | BinaryOp::Min => a.dtype,
        BinaryOp::Pow => {
            super::check_float(op, "operands", a)?;
            a.dtype
        }
        BinaryOp::Equal | BinaryOp::Less | BinaryOp::LessOrEqual => DType::U8,
        BinaryOp::LogicalAnd | BinaryOp::LogicalOr | BinaryOp::LogicalXor => {
            if a.dtype != DType::U8 {
                return Err(GraphError::DType { op, operand: "operands", expected: "uint8", got: a.dtype });
            }
            DType::U8
        }
    };
    Ok(Descriptor::new(dtype, a.shape.clone()))
}
