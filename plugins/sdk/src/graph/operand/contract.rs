//! Matrix products.

use super::Operand;
use crate::bindings::graphs::GemmOptions;
use crate::error::Result;

/// Matrix products.
impl Operand {
    binary! {
        /// Returns the matrix product; leading dimensions broadcast. Float.
        ///
        /// Shape: `[..., m, k]`, `[..., k, n]` -> `[..., m, n]`.
        matmul;
    }

    /// Returns `alpha * self * b + beta * c` for matrices. Float.
    ///
    /// Shape: `[m, k]`, `[k, n]`, and `c` that broadcasts to `[m, n]` -> `[m, n]`. The options can transpose the
    /// operands first.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn gemm(&self, b: &Self, c: Option<&Self>, options: GemmOptions) -> Result<Self> {
        self.graph.add_operand(|builder| builder.gemm(&self.raw, &b.raw, c.map(Self::raw), options))
    }
}
