//! Adjoints of matrix multiplication, which are matrix multiplications.

use super::AdjointStep;
use crate::NodeId;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{ContractOp, Op};

/// Returns `dA = dC B^T` or `dB = A^T dC`, with `A` and `B` as they are multiplied. The adjoint of a transposed operand
/// is the transposed product.
pub(super) fn adjoint(
    g: &mut GraphBuilder,
    op: ContractOp,
    step: &AdjointStep,
    operand: usize,
) -> Result<NodeId, GraphError> {
    let (a, b, dc) = (step.inputs[0], step.inputs[1], step.output_adjoint);
    let ContractOp::MatMul { transpose_a, transpose_b } = op;
    let (inputs, transpose_a, transpose_b) = match (operand, transpose_a, transpose_b) {
        (0, false, b_transposed) => ([dc, b], false, !b_transposed),
        (0, true, b_transposed) => ([b, dc], b_transposed, true),
        (_, a_transposed, false) => ([a, dc], !a_transposed, false),
        (_, a_transposed, true) => ([dc, a], true, a_transposed),
    };
    g.add_node(Op::Contract(ContractOp::MatMul { transpose_a, transpose_b }), &inputs)
}
