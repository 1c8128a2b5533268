//! Gather and scatter: elements selected by index tensors.

use super::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{IndexOp, Op, ScatterCombine};

impl GraphBuilder {
    /// Gathers `x [a.., d, b..]` at `indices [i..]` along `axis` -> `[a.., i.., b..]`. Negative indices count from the
    /// end; indices out of range are clamped.
    ///
    /// # Errors
    /// Returns `AxisOutOfRange`, `AxisEmpty`, `InvalidShape`, `UnknownOperand` or `TooManyNodes`;
    /// `DType` of the indices.
    pub fn gather(&mut self, x: NodeId, indices: NodeId, axis: usize) -> Result<NodeId, GraphError> {
        self.add_node(Op::Index(IndexOp::Gather { axis }), &[x, indices])
    }

    /// Adds each of `updates [a.., i.., b..]` to zeros `[a.., size, b..]` at its index along `axis`.
    ///
    /// # Errors
    /// Returns `AttributeRange`, `Rank`, `AxisOutOfRange`, `Dimension`, `InvalidShape`, `UnknownOperand` or
    /// `TooManyNodes`; `DType` of the indices.
    pub fn scatter_add(
        &mut self,
        indices: NodeId,
        updates: NodeId,
        axis: usize,
        size: usize,
    ) -> Result<NodeId, GraphError> {
        self.add_node(Op::Index(IndexOp::ScatterAdd { axis, size }), &[indices, updates])
    }

    /// Combines each of `updates [a.., i.., b..]` into `x [a.., d, b..]` at its index along `axis`, in the order of
    /// `indices [i..]`. Indices as in [`GraphBuilder::gather`].
    ///
    /// # Errors
    /// Returns `DTypesDiffer`, `AxisOutOfRange`, `AxisEmpty`, `Rank`, `Dimension`, `ShapesDiffer`, `UnknownOperand` or
    /// `TooManyNodes`; `DType` of the indices.
    pub fn scatter(
        &mut self,
        x: NodeId,
        indices: NodeId,
        updates: NodeId,
        axis: usize,
        combine: ScatterCombine,
    ) -> Result<NodeId, GraphError> {
        self.add_node(Op::Index(IndexOp::Scatter { axis, combine }), &[x, indices, updates])
    }
}
