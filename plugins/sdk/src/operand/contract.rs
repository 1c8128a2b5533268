//! Products of matrices.

use super::Operand;
use crate::bindings::graphs::GemmOptions;
use crate::error::Result;

/// Products of matrices.
impl Operand {
    binary! {
        /// The matrix product, leading dimensions broadcast.
        matmul;
    }

    /// `alpha * self * b + beta * c` for matrices.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn gemm(&self, b: &Self, c: Option<&Self>, options: GemmOptions) -> Result<Self> {
        self.graph.add_operand(|builder| builder.gemm(&self.raw, &b.raw, c.map(Self::raw), options))
    }
}
