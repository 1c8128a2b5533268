//! Inference of contractions.

use super::{expect_operands, new_descriptor};
use crate::Descriptor;
use crate::error::GraphError;
use crate::op::ContractOp;

pub(super) fn infer(contract: ContractOp, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = contract.name();
    let ContractOp::MatMul { transpose_a, transpose_b } = contract;
    let [a, b] = expect_operands(op, inputs)?;
    super::check_float(op, "a", a)?;
    super::check_same_dtype(op, a, b)?;
    let rank = a.shape.rank();
    if rank < 2 {
        return Err(GraphError::Rank { op, operand: "a", least: 2, most: usize::MAX, got: a.clone() });
    }
    super::check_rank(op, "b", b, rank)?;
    let (rows, columns) = (rank - 2, rank - 1);
    for axis in 0..rows {
        super::check_dimension(op, "b", b, axis, a.shape[axis])?;
    }
    let (m, k) = if transpose_a { (columns, rows) } else { (rows, columns) };
    let (k_of_b, n) = if transpose_b { (columns, rows) } else { (rows, columns) };
    super::check_dimension(op, "b", b, k_of_b, a.shape[k])?;
    let mut dims = a.shape.to_vec();
    dims[rows] = a.shape[m];
    dims[columns] = b.shape[n];
    new_descriptor(a.dtype, dims)
}
