//! Inference of data-dependent selections.

use super::{check_attribute_range, expect_operands, new_descriptor};
use crate::error::GraphError;
use crate::op::IndexOp;
use crate::{DType, Descriptor};

pub(super) fn infer(index: IndexOp, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = index.name();
    match index {
        IndexOp::Gather { axis } => gather(op, axis, expect_operands(op, inputs)?),
        IndexOp::ScatterAdd { axis, size } => scatter_add(op, axis, size, expect_operands(op, inputs)?),
        IndexOp::Scatter { axis, combine: _ } => scatter(op, axis, expect_operands(op, inputs)?),
    }
}

fn gather(op: &'static str, axis: usize, [x, indices]: [&Descriptor; 2]) -> Result<Descriptor, GraphError> {
    check_indices(op, indices)?;
    super::check_axis(op, x, axis)?;
    if x.shape[axis] == 0 {
        return Err(GraphError::AxisEmpty { op, axis, got: x.clone() });
    }
    let dims = [&x.shape[..axis], &indices.shape[..], &x.shape[axis + 1..]].concat();
    new_descriptor(x.dtype, dims)
}

fn scatter_add(
    op: &'static str,
    axis: usize,
    size: usize,
    [indices, updates]: [&Descriptor; 2],
) -> Result<Descriptor, GraphError> {
    check_indices(op, indices)?;
    check_attribute_range(op, "size", 1, size)?;
    let (index_rank, rank) = (indices.shape.rank(), updates.shape.rank());
    if rank < index_rank {
        let got = updates.clone();
        return Err(GraphError::Rank { op, operand: "updates", least: index_rank, most: usize::MAX, got });
    }
    if axis > rank - index_rank {
        return Err(GraphError::AxisOutOfRange { op, axis, got: updates.clone() });
    }
    for offset in 0..index_rank {
        super::check_dimension(op, "updates", updates, axis + offset, indices.shape[offset])?;
    }
    let dims = [&updates.shape[..axis], &[size], &updates.shape[axis + index_rank..]].concat();
    new_descriptor(updates.dtype, dims)
}

fn scatter(op: &'static str, axis: usize, [x, indices, updates]: [&Descriptor; 3]) -> Result<Descriptor, GraphError> {
    super::check_axis(op, x, axis)?;
    if x.shape[axis] == 0 {
        return Err(GraphError::AxisEmpty { op, axis, got: x.clone() });
    }
    super::check_same_dtype(op, x, updates)?;
    // An empty axis is refused above, so the size is at least 1.
    let sum = scatter_add(op, axis, x.shape[axis], [indices, updates])?;
    if sum.shape != x.shape {
        return Err(GraphError::ShapesDiffer { op, lhs: x.clone(), rhs: sum });
    }
    Ok(x.clone())
}

fn check_indices(op: &'static str, indices: &Descriptor) -> Result<(), GraphError> {
    match indices.dtype {
        DType::I32 | DType::U32 | DType::I64 | DType::U8 => Ok(()),
        DType::F32 | DType::F16 | DType::U64 | DType::I8 => {
            let expected = "int32, uint32, int64 or uint8";
            Err(GraphError::DType { op, operand: "indices", expected, got: indices.dtype })
        }
    }
}
