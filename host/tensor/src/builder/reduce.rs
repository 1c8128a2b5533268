//! Reductions, with reduced axes kept at size 1 or dropped.

use super::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{Op, ReduceKind, ReduceOp};

impl GraphBuilder {
    /// Returns the sum over `axes` (any order, distinct). The sum of zero elements is 0.
    ///
    /// Shape: `[a, b]`, axes `[1]` -> `[a, 1]` with `keep`, else `[a]`. DType unchanged.
    ///
    /// # Errors
    /// Returns `AxisOutOfRange`, `UnknownNode` or `TooManyNodes`; `AxesUnsorted` for an axis named twice.
    pub fn reduce_sum(&mut self, x: NodeId, axes: &[usize], keep: bool) -> Result<NodeId, GraphError> {
        self.reduce(ReduceKind::Sum, x, axes, keep)
    }

    /// Returns the product over `axes`; 1 for zero elements. Shapes as [`GraphBuilder::reduce_sum`].
    ///
    /// # Errors
    /// As [`GraphBuilder::reduce_sum`].
    pub fn reduce_product(&mut self, x: NodeId, axes: &[usize], keep: bool) -> Result<NodeId, GraphError> {
        self.reduce(ReduceKind::Product, x, axes, keep)
    }

    /// Returns the maximum over `axes`; -inf or the type's smallest value for zero elements. Shapes as
    /// [`GraphBuilder::reduce_sum`].
    ///
    /// # Errors
    /// As [`GraphBuilder::reduce_sum`].
    pub fn reduce_max(&mut self, x: NodeId, axes: &[usize], keep: bool) -> Result<NodeId, GraphError> {
        self.reduce(ReduceKind::Max, x, axes, keep)
    }

    /// Returns the minimum over `axes`; +inf or the type's largest value for zero elements. Shapes as
    /// [`GraphBuilder::reduce_sum`].
    ///
    /// # Errors
    /// As [`GraphBuilder::reduce_sum`].
    pub fn reduce_min(&mut self, x: NodeId, axes: &[usize], keep: bool) -> Result<NodeId, GraphError> {
        self.reduce(ReduceKind::Min, x, axes, keep)
    }

    /// Reduces over `axes` by `kind`. Shapes as [`GraphBuilder::reduce_sum`].
    ///
    /// # Errors
    /// As [`GraphBuilder::reduce_sum`].
    pub fn reduce(&mut self, kind: ReduceKind, x: NodeId, axes: &[usize], keep: bool) -> Result<NodeId, GraphError> {
        let mut axes = axes.to_vec();
        axes.sort_unstable();
        let folded = self.add_node(Op::Reduce(ReduceOp::Fold { kind, axes: axes.clone() }), &[x])?;
        if keep { Ok(folded) } else { self.drop_axes(folded, &axes) }
    }

    /// Returns the index of the first largest element along `axis`. Result `int32`.
    ///
    /// # Errors
    /// Returns `AxisOutOfRange`, `AxisEmpty`, `UnknownNode` or `TooManyNodes`.
    pub fn arg_max(&mut self, x: NodeId, axis: usize, keep: bool) -> Result<NodeId, GraphError> {
        let index = self.add_node(Op::Reduce(ReduceOp::ArgMax { axis }), &[x])?;
        if keep { Ok(index) } else { self.drop_axes(index, &[axis]) }
    }

    /// Returns the index of the first smallest element along `axis`. Result `int32`.
    ///
    /// # Errors
    /// Returns `AxisOutOfRange`, `AxisEmpty`, `UnknownNode` or `TooManyNodes`.
    pub fn arg_min(&mut self, x: NodeId, axis: usize, keep: bool) -> Result<NodeId, GraphError> {
        let index = self.add_node(Op::Reduce(ReduceOp::ArgMin { axis }), &[x])?;
        if keep { Ok(index) } else { self.drop_axes(index, &[axis]) }
    }

    /// Drops these axes, which have size 1.
    fn drop_axes(&mut self, x: NodeId, axes: &[usize]) -> Result<NodeId, GraphError> {
        let shape = self.shape_of(x)?;
        let dims: Vec<usize> =
            shape.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, &dim)| dim).collect();
        self.reshape(x, &dims)
    }
}
