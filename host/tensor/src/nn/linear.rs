//! Matrix products with scaling and bias.

use super::f32_compute::in_f32_with;
use super::{check_rank, scale_by};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{ContractOp, Op};

/// Options of [`gemm`]: WebNN's `MLGemmOptions`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GemmOptions {
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of the addend.
    pub beta: f64,
    /// Whether the first operand is `[k, m]`.
    pub transpose_a: bool,
    /// Whether the second operand is `[n, k]`.
    pub transpose_b: bool,
}

impl Default for GemmOptions {
    fn default() -> GemmOptions {
        GemmOptions { alpha: 1.0, beta: 1.0, transpose_a: false, transpose_b: false }
    }
}

/// Returns `alpha * a b + beta * c` for matrices. Float.
///
/// Shape: `a [m, k]`, `b [k, n]`, `c` broadcast to `[m, n]` -> `[m, n]`. Source: WebNN `gemm`.
///
/// # Errors
/// Returns `Rank`, `DType`, `DTypesDiffer`, `Dimension`, `BroadcastTo`, `UnknownNode` or `TooManyNodes`.
pub fn gemm(
    g: &mut GraphBuilder,
    a: NodeId,
    b: NodeId,
    c: Option<NodeId>,
    options: GemmOptions,
) -> Result<NodeId, GraphError> {
    let GemmOptions { alpha, beta, transpose_a, transpose_b } = options;
    check_rank(g, "gemm", "a", a, 2)?;
    check_rank(g, "gemm", "b", b, 2)?;
    let product = g.add_node(Op::Contract(ContractOp::MatMul { transpose_a, transpose_b }), &[a, b])?;
    if alpha == 1.0 && c.is_none() {
        return Ok(product);
    }
    let scaled = |g: &mut GraphBuilder, x: NodeId, by: f64| if by == 1.0 { Ok(x) } else { scale_by(g, x, by) };
    in_f32_with(g, "gemm", product, [c], |g, product, [c]| {
        let product = scaled(g, product, alpha)?;
        let Some(c) = c else { return Ok(product) };
        let c = g.broadcast_to(c, g.descriptor(product).shape.clone())?;
        let c = scaled(g, c, beta)?;
        g.add(product, c)
    })
}

/// Returns the result of a fully connected layer: `x w + bias`. Float.
///
/// Shape: `x [b.., in]`, `w [in, out]`, `bias [out]` -> `[b.., out]`.
///
/// # Errors
/// Returns `Rank`, `DType`, `DTypesDiffer`, `Dimension`, `Broadcast`, `UnknownNode` or `TooManyNodes`.
pub fn linear(g: &mut GraphBuilder, x: NodeId, w: NodeId, bias: Option<NodeId>) -> Result<NodeId, GraphError> {
    check_rank(g, "linear", "weight", w, 2)?;
    let y = g.matmul(x, w)?;
    let Some(bias) = bias else { return Ok(y) };
    let bias = g.broadcast_to(bias, g.descriptor(y).shape.clone())?;
    g.add(y, bias)
}
