//! Element-wise operators of one operand: a method for each row of their table. Shape unchanged.

use super::GraphBuilder;
use crate::DType;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{Op, UnaryOp, unary_table};

macro_rules! builder_methods {
    ($($(#[$doc:meta])* $variant:ident: $method:ident, $name:literal, $facts:expr;)*) => {
        impl GraphBuilder {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Returns `DType`, `UnknownOperand` or `TooManyNodes`.
                pub fn $method(&mut self, x: NodeId) -> Result<NodeId, GraphError> {
                    self.add_node(Op::Unary(UnaryOp::$variant), &[x])
                }
            )*
        }
    };
}
unary_table!(builder_methods);

impl GraphBuilder {
    /// Converts `x` to `dtype`; returns `x` if it already has that type.
    ///
    /// # Errors
    /// Returns `UnknownNode` or `TooManyNodes`.
    pub fn cast(&mut self, x: NodeId, dtype: DType) -> Result<NodeId, GraphError> {
        if self.descriptor_of(x)?.dtype == dtype {
            return Ok(x);
        }
        self.add_node(Op::Unary(UnaryOp::Cast(dtype)), &[x])
    }
}
