//! Movements of elements. Any data type, unchanged. A movement that would change nothing returns its operand.

use super::GraphBuilder;
use crate::Shape;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::infer::coerce_scalar;
use crate::op::{MovementOp, Op, Scalar};

impl GraphBuilder {
    /// Returns the same elements in row-major order, in another shape of the same size.
    ///
    /// # Errors
    /// Returns `ElementCount`, `InvalidShape`, `UnknownNode` or `TooManyNodes`.
    pub fn reshape(&mut self, x: NodeId, dims: &[usize]) -> Result<NodeId, GraphError> {
        if self.descriptor_of(x)?.shape.dims() == dims {
            return Ok(x);
        }
        self.add_node(Op::Movement(MovementOp::Reshape(Shape::new(dims)?)), &[x])
    }

    /// Broadcasts to `to` like numpy (WebNN: `expand`): aligned at the last axis, axes of size 1 are repeated.
    ///
    /// # Errors
    /// Returns `BroadcastTo`, `UnknownNode` or `TooManyNodes`.
    pub fn broadcast_to(&mut self, x: NodeId, to: Shape) -> Result<NodeId, GraphError> {
        let from = self.descriptor_of(x)?;
        if from.shape == to {
            return Ok(x);
        }
        let Some(missing) = to.rank().checked_sub(from.shape.rank()) else {
            let error = GraphError::BroadcastTo { op: "expand", from: from.clone(), to };
            return Err(self.error_with_labels(error, &[x]));
        };
        // Checked before the reshape is added, so that the error has the operand's shape.
        if from.shape.iter().zip(&to[missing..]).any(|(&from, &to)| from != 1 && from != to) {
            let error = GraphError::BroadcastTo { op: "expand", from: from.clone(), to };
            return Err(self.error_with_labels(error, &[x]));
        }
        let aligned = [&vec![1; missing][..], &from.shape[..]].concat();
        let aligned = self.reshape(x, &aligned)?;
        if self.descriptor(aligned).shape == to {
            return Ok(aligned);
        }
        self.add_node(Op::Movement(MovementOp::Broadcast(to)), &[aligned])
    }

    /// Permutes axes: result axis `i` is operand axis `permutation[i]`.
    ///
    /// # Errors
    /// Returns `AttributeCount`, `NotPermutation`, `UnknownNode` or `TooManyNodes`.
    pub fn transpose(&mut self, x: NodeId, permutation: &[usize]) -> Result<NodeId, GraphError> {
        let rank = self.descriptor_of(x)?.shape.rank();
        if permutation.iter().copied().eq(0..rank) {
            return Ok(x);
        }
        self.add_node(Op::Movement(MovementOp::Transpose(permutation.to_vec())), &[x])
    }

    /// Takes, along each axis `i`, `sizes[i]` elements from `starts[i]`, every `strides[i]`-th. `sizes` count result
    /// elements, unlike WebNN's, which count the window.
    ///
    /// # Errors
    /// Returns `AttributeCount`, `SliceOutOfRange`, `UnknownNode` or `TooManyNodes`; `AttributeRange` for a stride of
    /// 0.
    pub fn slice(
        &mut self,
        x: NodeId,
        starts: &[usize],
        sizes: &[usize],
        strides: &[usize],
    ) -> Result<NodeId, GraphError> {
        let (starts, sizes, strides) = (starts.to_vec(), sizes.to_vec(), strides.to_vec());
        self.add_node(Op::Movement(MovementOp::Slice { starts, sizes, strides }), &[x])
    }

    /// Takes elements `start .. start + size` along `axis`, and all elements along the other axes.
    ///
    /// # Errors
    /// Returns `AxisOutOfRange`, `SliceOutOfRange`, `UnknownNode` or `TooManyNodes`.
    pub fn narrow(&mut self, x: NodeId, axis: usize, start: usize, size: usize) -> Result<NodeId, GraphError> {
        let from = self.descriptor_of(x)?;
        let mut sizes = from.shape.to_vec();
        if axis >= sizes.len() {
            let error = GraphError::AxisOutOfRange { op: "slice", axis, got: from.clone() };
            return Err(self.error_with_labels(error, &[x]));
        }
        let mut starts = vec![0; sizes.len()];
        starts[axis] = start;
        sizes[axis] = size;
        let strides = vec![1; sizes.len()];
        self.slice(x, &starts, &sizes, &strides)
    }

    /// Reverses the order along `axes` (any order, distinct).
    ///
    /// # Errors
    /// Returns `AxisOutOfRange`, `UnknownOperand` or `TooManyNodes`; `AxesUnsorted` for an axis named twice.
    pub fn reverse(&mut self, x: NodeId, axes: &[usize]) -> Result<NodeId, GraphError> {
        let mut axes = axes.to_vec();
        axes.sort_unstable();
        self.add_node(Op::Movement(MovementOp::Reverse(axes)), &[x])
    }

    /// Adds `low[i]` elements `value` before and `high[i]` after along each axis `i`.
    ///
    /// # Errors
    /// Returns `AttributeCount`, `ScalarRange`, `InvalidShape`, `UnknownNode` or `TooManyNodes`.
    pub fn pad(&mut self, x: NodeId, low: &[usize], high: &[usize], value: Scalar) -> Result<NodeId, GraphError> {
        let value = coerce_scalar("pad", value, self.descriptor_of(x)?.dtype)?;
        self.add_node(Op::Movement(MovementOp::Pad { low: low.to_vec(), high: high.to_vec(), value }), &[x])
    }

    /// Joins operands along `axis`; their other dimensions are equal.
    ///
    /// # Errors
    /// Returns `OperandCount`, `AxisOutOfRange`, `DTypesDiffer`, `ShapesDiffer`, `InvalidShape` or `TooManyNodes`.
    pub fn concat(&mut self, inputs: &[NodeId], axis: usize) -> Result<NodeId, GraphError> {
        self.add_node(Op::Movement(MovementOp::Concat { axis }), inputs)
    }
}
