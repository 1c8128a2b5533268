//! Inference of element-wise operators of two operands.

use super::{check_operand_types, check_same_descriptor, expect_operands};
use crate::error::GraphError;
use crate::op::BinaryOp;
use crate::{DType, Descriptor};

pub(super) fn infer(binary: BinaryOp, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let (op, facts) = (binary.name(), binary.facts());
    let [a, b] = expect_operands(op, inputs)?;
    check_same_descriptor(op, a, b)?;
    check_operand_types(op, "operands", facts.operands, a)?;
    let dtype = if facts.is_boolean { DType::U8 } else { a.dtype };
    Ok(Descriptor::new(dtype, a.shape.clone()))
}
