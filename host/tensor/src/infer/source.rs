//! Inference of sources: the declared descriptor, if it is valid for the source.

use super::{check_axis, check_scalar, expect_operands};
use crate::error::GraphError;
use crate::op::{Scalar, SourceOp};
use crate::{DType, Descriptor};

pub(super) fn infer(
    source: &SourceOp,
    inputs: &[&Descriptor],
    declared: Option<&Descriptor>,
) -> Result<Descriptor, GraphError> {
    let op = source.name();
    let declared = declared.ok_or(GraphError::Undeclared { op })?;
    match source {
        SourceOp::Input(_) | SourceOp::Constant(_) | SourceOp::Variable(_) => {
            let [] = expect_operands(op, inputs)?;
        }
        SourceOp::Fill(value) => {
            let [] = expect_operands(op, inputs)?;
            check_scalar(op, *value, declared.dtype)?;
        }
        SourceOp::Iota { axis: along } => {
            let [] = expect_operands(op, inputs)?;
            check_axis(op, declared, *along)?;
            let largest = declared.shape[*along].saturating_sub(1);
            if !declared.dtype.is_float() {
                check_scalar(op, Scalar::Int(largest as i128), declared.dtype)?;
            }
        }
        SourceOp::Random { stream: _, distribution } => {
            let [key] = expect_operands(op, inputs)?;
            if key.dtype != DType::U32 {
                return Err(GraphError::DType { op, operand: "key", expected: "uint32", got: key.dtype });
            }
            super::check_rank(op, "key", key, 1)?;
            super::check_dimension(op, "key", key, 0, 4)?;
            let dtype = distribution.dtype();
            if declared.dtype != dtype {
                let inferred = Descriptor::new(dtype, declared.shape.clone());
                return Err(GraphError::Declared { op, declared: declared.clone(), inferred });
            }
        }
    }
    Ok(declared.clone())
}
