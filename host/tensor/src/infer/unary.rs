//! Inference of element-wise operators of one operand.

use super::{check_operand_types, expect_operands};
use crate::Descriptor;
use crate::error::GraphError;
use crate::op::UnaryOp;

pub(super) fn infer(unary: UnaryOp, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = unary.name();
    let [input] = expect_operands(op, inputs)?;
    check_operand_types(op, "input", unary.facts().operands, input)?;
    let dtype = if let UnaryOp::Cast(to) = unary { to } else { input.dtype };
    Ok(Descriptor::new(dtype, input.shape.clone()))
}
