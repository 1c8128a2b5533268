//! Inference of reductions: reduced axes stay with size 1.

use super::operands;
use crate::error::GraphError;
use crate::op::Reduce;
use crate::{DType, Descriptor};

pub(super) fn infer(reduce: &Reduce, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = reduce.name();
    let [input] = operands(op, inputs)?;
    let mut dims = input.shape.to_vec();
    let dtype = match reduce {
        Reduce::Fold { kind: _, axes } => {
            super::axes(op, input, axes)?;
            for &axis in axes {
                dims[axis] = 1;
            }
            input.dtype
        }
        Reduce::ArgMax { axis } | Reduce::ArgMin { axis } => {
            super::axis(op, input, *axis)?;
            if dims[*axis] == 0 {
                return Err(GraphError::AxisEmpty { op, axis: *axis, got: input.clone() });
            }
            dims[*axis] = 1;
            DType::I32
        }
    };
    super::described(dtype, dims)
}
