//! Inference of reductions: reduced axes stay with size 1.

use super::expect_operands;
use crate::error::GraphError;
use crate::op::ReduceOp;
use crate::{DType, Descriptor};

pub(super) fn infer(reduce: &ReduceOp, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = reduce.name();
    let [input] = expect_operands(op, inputs)?;
    let mut dims = input.shape.to_vec();
    let dtype = match reduce {
        ReduceOp::Fold { kind: _, axes } => {
            super::check_axes(op, input, axes)?;
            for &axis in axes {
                dims[axis] = 1;
            }
            input.dtype
        }
        ReduceOp::ArgMax { axis } | ReduceOp::ArgMin { axis } => {
            super::check_axis(op, input, *axis)?;
            if dims[*axis] == 0 {
                return Err(GraphError::AxisEmpty { op, axis: *axis, got: input.clone() });
            }
            dims[*axis] = 1;
            DType::I32
        }
    };
    super::new_descriptor(dtype, dims)
}
