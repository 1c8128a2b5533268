//! Inference of sources: they are what they are declared to be, where that is possible.

use super::{axis, check_scalar, operands};
use crate::error::GraphError;
use crate::op::{Distribution, Scalar, Source};
use crate::{DType, Descriptor};

pub(super) fn infer(
    source: &Source,
    inputs: &[&Descriptor],
    declared: Option<&Descriptor>,
) -> Result<Descriptor, GraphError> {
    let op = source.name();
    let declared = declared.ok_or(GraphError::Undeclared { op })?;
    match source {
        Source::Input(_) | Source::Constant(_) | Source::Variable(_) => {
            let [] = operands(op, inputs)?;
        }
        Source::Fill(value) => {
            let [] = operands(op, inputs)?;
            check_scalar(op, *value, declared.dtype)?;
        }
        Source::Iota { axis: along } => {
            let [] = operands(op, inputs)?;
            axis(op, declared, *along)?;
            let largest = declared.shape[*along].saturating_sub(1);
            if !declared.dtype.is_float() {
                check_scalar(op, Scalar::Int(largest as i128), declared.dtype)?;
            }
        }
        Source::Random { stream: _, distribution } => {
            let [key] = operands(op, inputs)?;
            if key.dtype != DType::U32 {
                return Err(GraphError::DType { op, operand: "key", expected: "uint32", got: key.dtype });
            }
            super::rank(op, "key", key, 1)?;
            super::dimension(op, "key", key, 0, 4)?;
            let dtype = match distribution {
                Distribution::Bits => DType::U32,
                Distribution::Uniform => DType::F32,
            };
            if declared.dtype != dtype {
                let inferred = Descriptor::new(dtype, declared.shape.clone());
                return Err(GraphError::Declared { op, declared: declared.clone(), inferred });
            }
        }
    }
    Ok(declared.clone())
}
