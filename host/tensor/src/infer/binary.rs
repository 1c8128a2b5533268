//! Inference of element-wise operators of two operands.

use super::{operands, same};
use crate::error::GraphError;
use crate::op::Binary;
use crate::{DType, Descriptor};

pub(super) fn infer(binary: Binary, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = binary.name();
    let [a, b] = operands(op, inputs)?;
    same(op, a, b)?;
    let dtype = match binary {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Max | Binary::Min => a.dtype,
        Binary::Pow => {
            super::float(op, "operands", a)?;
            a.dtype
        }
        Binary::Equal | Binary::Less | Binary::LessOrEqual => DType::U8,
        Binary::LogicalAnd | Binary::LogicalOr | Binary::LogicalXor => {
            if a.dtype != DType::U8 {
                return Err(GraphError::DType { op, operand: "operands", expected: "uint8", got: a.dtype });
            }
            DType::U8
        }
    };
    Ok(Descriptor::new(dtype, a.shape.clone()))
}
