//! Computation of half-precision operands in single precision.
//!
//! A composite of many steps would round after each of them. In `float16` that costs several of eleven bits, and sums
//! overflow that fit in single precision. So composites widen their operands and round their result once.

use crate::DType;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;

/// Returns `node` in `float32` if it is `float16`, else itself.
pub(super) fn to_f32(g: &mut GraphBuilder, node: NodeId) -> Result<NodeId, GraphError> {
    if g.descriptor_of(node)?.dtype == DType::F16 { g.cast(node, DType::F32) } else { Ok(node) }
}

/// Calls `build` with `x`, widened to `float32` if it is `float16`, and returns the result in `x`'s data type.
pub(super) fn in_f32(
    g: &mut GraphBuilder,
    x: NodeId,
    build: impl FnOnce(&mut GraphBuilder, NodeId) -> Result<NodeId, GraphError>,
) -> Result<NodeId, GraphError> {
    let dtype = g.descriptor_of(x)?.dtype;
    let wide = to_f32(g, x)?;
    let built = build(g, wide)?;
    if dtype == DType::F16 { g.cast(built, dtype) } else { Ok(built) }
}

/// As [`in_f32`], with optional other operands of `x`'s data type.
pub(super) fn in_f32_with<const N: usize>(
    g: &mut GraphBuilder,
    op: &'static str,
    x: NodeId,
    others: [Option<NodeId>; N],
    build: impl FnOnce(&mut GraphBuilder, NodeId, [Option<NodeId>; N]) -> Result<NodeId, GraphError>,
) -> Result<NodeId, GraphError> {
    let wide = operands_to_f32(g, op, x, others)?;
    in_f32(g, x, |g, x| build(g, x, wide))
}

/// Returns optional operands, widened to `float32` if they are `float16`. All must have `x`'s data type.
///
/// # Errors
/// Returns `DTypesDiffer`, `UnknownNode` or `TooManyNodes`.
pub(super) fn operands_to_f32<const N: usize>(
    g: &mut GraphBuilder,
    op: &'static str,
    x: NodeId,
    others: [Option<NodeId>; N],
) -> Result<[Option<NodeId>; N], GraphError> {
    let lhs = g.descriptor_of(x)?.clone();
    let mut wide = others;
    for other in wide.iter_mut().flatten() {
        let rhs = g.descriptor_of(*other)?.clone();
        if rhs.dtype != lhs.dtype {
            return Err(GraphError::DTypesDiffer { op, lhs, rhs });
        }
        *other = to_f32(g, *other)?;
    }
    Ok(wide)
}
