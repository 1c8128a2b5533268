//! Reductions, with the reduced axes kept at size 1 or dropped.

use super::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{Op, ReduceKind, ReduceOp};

impl GraphBuilder {
    /// Sum over `axes` (any order, distinct). Of nothing: 0.
    ///
    /// Shape: `[a, b]`, axes `[1]` -> `[a, 1]` with `keep`, else `[a]`. DType unchanged.
    ///
    /// # Errors
    /// `AxisOutOfRange`; `AxesUnsorted` for an axis named twice; `UnknownNode`; `TooManyNodes`.
    pub fn reduce_sum(&mut self, x: NodeId, axes: &[usize], keep: bool) -> Result<NodeId, GraphError> {
        self.reduce(ReduceKind::Sum, x, axes, keep)
    }

    /// Product over `axes`. Of nothing: 1. Shapes and errors as [`GraphBuilder::reduce_sum`].
    ///
    /// # Errors
    /// As [`GraphBuilder::reduce_sum`].
    pub fn reduce_product(&mut self, x: NodeId, axes: &[usize], keep: bool) -> Result<NodeId, GraphError> {
        self.reduce(ReduceKind::Product, x, axes, keep)
    }

    /// Largest over `axes`. Of nothing: -inf or the type's smallest. Shapes and errors as [`GraphBuilder::reduce_sum`].
    ///
    /// # Errors
    /// As [`GraphBuilder::reduce_sum`].
    pub fn reduce_max(&mut self, x: NodeId, axes: &[usize], keep: bool) -> Result<NodeId, GraphError> {
        self.reduce(ReduceKind::Max, x, axes, keep)
    }

    /// Smallest over `axes`. Of nothing: +inf or the type's largest. Shapes and errors as [`GraphBuilder::reduce_sum`].
    ///
    /// # Errors
    /// As [`GraphBuilder::reduce_sum`].
    pub fn reduce_min(&mut self, x: NodeId, axes: &[usize], keep: bool) -> Result<NodeId, GraphError> {
        self.reduce(ReduceKind::Min, x, axes, keep)
    }

    /// Combines over `axes` as `kind` says. Shapes as [`GraphBuilder::reduce_sum`].
    ///
    /// # Errors
    /// As [`GraphBuilder::reduce_sum`].
    pub fn reduce(&mut self, kind: ReduceKind, x: NodeId, axes: &[usize], keep: bool) -> Result<NodeId, GraphError> {
        let mut axes = axes.to_vec();
        axes.sort_unstable();
        let folded = self.add_node(Op::Reduce(ReduceOp::Fold { kind, axes: axes.clone() }), &[x])?;
        if keep { Ok(folded) } else { self.drop_axes(folded, &axes) }
    }

    /// Index of the largest element along `axis`, the first of equals. Result `int32`.
    ///
    /// # Errors
    /// `AxisOutOfRange`; `AxisEmpty`; `UnknownNode`; `TooManyNodes`.
    pub fn arg_max(&mut self, x: NodeId, axis: usize, keep: bool) -> Result<NodeId, GraphError> {
        let index = self.add_node(Op::Reduce(ReduceOp::ArgMax { axis }), &[x])?;
        if keep { Ok(index) } else { self.drop_axes(index, &[axis]) }
    }

    /// Index of the smallest element along `axis`, the first of equals. Result `int32`.
    ///
    /// # Errors
    /// `AxisOutOfRange`; `AxisEmpty`; `UnknownNode`; `TooManyNodes`.
    pub fn arg_min(&mut self, x: NodeId, axis: usize, keep: bool) -> Result<NodeId, GraphError> {
        let index = self.add_node(Op::Reduce(ReduceOp::ArgMin { axis }), &[x])?;
        if keep { Ok(index) } else { self.drop_axes(index, &[axis]) }
    }

    /// Without these axes, which have size 1.
    fn drop_axes(&mut self, x: NodeId, axes: &[usize]) -> Result<NodeId, GraphError> {
        let shape = self.shape_of(x)?;
        let kept: Vec<usize> =
            shape.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, &dim)| dim).collect();
        self.reshape(x, &kept)
    }
}
