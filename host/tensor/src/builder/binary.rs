//! Element-wise operators of two operands, a method for each row of their table, and selection. Shapes broadcast like numpy's; data types must be equal.

use super::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{BinaryOp, Op, binary_table};
use crate::{Descriptor, Shape};

macro_rules! builder_methods {
    ($($(#[$doc:meta])* $variant:ident: $method:ident, $name:literal, $facts:expr;)*) => {
        impl GraphBuilder {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Returns `DTypesDiffer`, `Broadcast`, `DType`, `UnknownNode` or `TooManyNodes`.
                pub fn $method(&mut self, a: NodeId, b: NodeId) -> Result<NodeId, GraphError> {
                    self.binary(BinaryOp::$variant, a, b)
                }
            )*
        }
    };
}
binary_table!(builder_methods);

impl GraphBuilder {
    /// Broadcasts both operands to their common shape and applies `op`.
    ///
    /// # Errors
    /// Returns `DTypesDiffer`, `Broadcast`, `DType`, `UnknownNode` or `TooManyNodes`.
    pub fn binary(&mut self, op: BinaryOp, a: NodeId, b: NodeId) -> Result<NodeId, GraphError> {
        let (a, b) = self.broadcast_pair(op.name(), a, b)?;
        self.add_node(Op::Binary(op), &[a, b])
    }

    /// Returns 1 if `a` differs from `b`, else 0; NaN differs from everything. Result `uint8`.
    ///
    /// # Errors
    /// Returns `DTypesDiffer`, `Broadcast`, `UnknownNode` or `TooManyNodes`.
    pub fn not_equal(&mut self, a: NodeId, b: NodeId) -> Result<NodeId, GraphError> {
        let (a, b) = self.broadcast_pair("not-equal", a, b)?;
        let equal = self.add_node(Op::Binary(BinaryOp::Equal), &[a, b])?;
        self.logical_not(equal)
    }

    /// Returns 1 if `a > b`, else 0. Result `uint8`.
    ///
    /// # Errors
    /// Returns `DTypesDiffer`, `Broadcast`, `UnknownNode` or `TooManyNodes`.
    pub fn greater(&mut self, a: NodeId, b: NodeId) -> Result<NodeId, GraphError> {
        let (a, b) = self.broadcast_pair("greater", a, b)?;
        self.add_node(Op::Binary(BinaryOp::Less), &[b, a])
    }

    /// Returns 1 if `a >= b`, else 0. Result `uint8`.
    ///
    /// # Errors
    /// Returns `DTypesDiffer`, `Broadcast`, `UnknownNode` or `TooManyNodes`.
    pub fn greater_or_equal(&mut self, a: NodeId, b: NodeId) -> Result<NodeId, GraphError> {
        let (a, b) = self.broadcast_pair("greater-or-equal", a, b)?;
        self.add_node(Op::Binary(BinaryOp::LessOrEqual), &[b, a])
    }

    /// Returns `condition ? a : b` (WebNN: `where`); all three broadcast. `condition` is `uint8`.
    ///
    /// # Errors
    /// Returns `DTypesDiffer`, `Broadcast`, `UnknownNode` or `TooManyNodes`; `DType` of the condition.
    pub fn select(&mut self, condition: NodeId, a: NodeId, b: NodeId) -> Result<NodeId, GraphError> {
        let op = Op::Select.name();
        let values = self.common_descriptor(op, a, b)?;
        let shape = common_shape(op, self.descriptor_of(condition)?, &values)
            .map_err(|error| self.error_with_labels(error, &[condition, a, b]))?;
        let condition = self.broadcast_to(condition, shape.clone())?;
        let a = self.broadcast_to(a, shape.clone())?;
        let b = self.broadcast_to(b, shape)?;
        self.add_node(Op::Select, &[condition, a, b])
    }

    /// Broadcasts both operands to their common shape.
    fn broadcast_pair(&mut self, op: &'static str, a: NodeId, b: NodeId) -> Result<(NodeId, NodeId), GraphError> {
        let shape = self.common_descriptor(op, a, b)?.shape;
        Ok((self.broadcast_to(a, shape.clone())?, self.broadcast_to(b, shape)?))
    }

    /// Returns the common data type, and the shape that both broadcast to. Adds no node.
    fn common_descriptor(&self, op: &'static str, a: NodeId, b: NodeId) -> Result<Descriptor, GraphError> {
        let (lhs, rhs) = (self.descriptor_of(a)?, self.descriptor_of(b)?);
        let common = if lhs.dtype == rhs.dtype {
            common_shape(op, lhs, rhs)
        } else {
            Err(GraphError::DTypesDiffer { op, lhs: lhs.clone(), rhs: rhs.clone() })
        };
        let shape = common.map_err(|error| self.error_with_labels(error, &[a, b]))?;
        Ok(Descriptor::new(lhs.dtype, shape))
    }
}

/// Returns the shape that both broadcast to: aligned at the last axis, each pair of dimensions is equal or one of them
/// is 1.
///
/// # Errors
/// Returns `Broadcast` or `InvalidShape`.
pub(crate) fn common_shape(op: &'static str, lhs: &Descriptor, rhs: &Descriptor) -> Result<Shape, GraphError> {
    let rank = lhs.shape.rank().max(rhs.shape.rank());
    let dim = |shape: &Shape, axis: usize| (axis + shape.rank()).checked_sub(rank).map_or(1, |own| shape[own]);
    let mut dims = Vec::with_capacity(rank);
    for axis in 0..rank {
        dims.push(match (dim(&lhs.shape, axis), dim(&rhs.shape, axis)) {
            (a, b) if a == b => a,
            (1, b) => b,
            (a, 1) => a,
            _ => return Err(GraphError::Broadcast { op, lhs: lhs.clone(), rhs: rhs.clone() }),
        });
    }
    Ok(Shape::new(dims)?)
}
