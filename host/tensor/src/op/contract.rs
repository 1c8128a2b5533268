//! Contractions: matrix multiplication.

use serde::{Deserialize, Serialize};

/// A contraction of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ContractOp {
    /// Batched matrix product. Float operands of one data type.
    ///
    /// Shape: `[b.., m, k]`, `[b.., k, n]` -> `[b.., m, n]`, equal batch dimensions; a transposed operand has its last
    /// two dimensions swapped. `k = 0` gives zeros.
    MatMul {
        /// Whether the first operand is `[b.., k, m]`.
        transpose_a: bool,
        /// Whether the second operand is `[b.., n, k]`.
        transpose_b: bool,
    },
}

impl ContractOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            ContractOp::MatMul { .. } => "matmul",
        }
    }

    pub(super) fn prototypes() -> [ContractOp; 1] {
        [ContractOp::MatMul { transpose_a: false, transpose_b: false }]
    }
}
