//! Elements chosen by other elements' values.

use super::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{IndexOp, Op, ScatterCombine};

impl GraphBuilder {
    /// `x [a.., d, b..]` at `indices [i..]` along `axis` -> `[a.., i.., b..]`. Negative indices count from the end; the
    /// rest is clamped.
    ///
    /// # Errors
    /// `DType` of the indices; `AxisOutOfRange`; `AxisEmpty`; `RankTooLarge`; `TooManyElements`; `UnknownOperand`;
    /// `TooManyNodes`.
    pub fn gather(&mut self, x: NodeId, indices: NodeId, axis: usize) -> Result<NodeId, GraphError> {
        self.add_node(Op::Index(IndexOp::Gather { axis }), &[x, indices])
    }

    /// Zeros `[a.., size, b..]` plus every one of `updates [a.., i.., b..]` at its index along `axis`.
    ///
    /// # Errors
    /// `DType` of the indices; `AttributeRange`; `Rank`; `AxisOutOfRange`; `Dimension`; `TooManyElements`;
    /// `UnknownOperand`; `TooManyNodes`.
    pub fn scatter_add(
        &mut self,
        indices: NodeId,
        updates: NodeId,
        axis: usize,
        size: usize,
    ) -> Result<NodeId, GraphError> {
        self.add_node(Op::Index(IndexOp::ScatterAdd { axis, size }), &[indices, updates])
    }

    /// `x [a.., d, b..]` with each of `updates [a.., i.., b..]` combined into its place along `axis`, in the order of
    /// `indices [i..]`; indices as in [`GraphBuilder::gather`].
    ///
    /// # Errors
    /// `DType` of the indices; `DTypesDiffer`; `AxisOutOfRange`; `AxisEmpty`; `Rank`; `Dimension`; `ShapesDiffer`;
    /// `UnknownOperand`; `TooManyNodes`.
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
