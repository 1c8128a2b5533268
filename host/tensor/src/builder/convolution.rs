//! Windowed operators. NCHW, filters OIHW; other layouts transpose first.

use super::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{Conv2d, ConvolutionOp, Op, Pool2d, PoolKind};

impl GraphBuilder {
    /// Adds a cross-correlation: `x [n, c, h, w]`, `filter [o, c/groups, kh, kw]` -> `[n, o, oh, ow]`. Float.
    ///
    /// # Errors
    /// Returns `DType`, `DTypesDiffer`, `Rank`, `Dimension`, `Groups`, `AttributeRange`, `WindowTooLarge`,
    /// `InvalidShape`, `UnknownOperand` or `TooManyNodes`.
    pub fn conv2d(&mut self, x: NodeId, filter: NodeId, conv: Conv2d) -> Result<NodeId, GraphError> {
        self.add_node(Op::Convolution(ConvolutionOp::Conv2d(conv)), &[x, filter])
    }

    /// Returns the maximum or sum of each window: `[n, c, h, w]` -> `[n, c, oh, ow]`. Float.
    ///
    /// # Errors
    /// Returns `DType`, `Rank`, `AttributeRange`, `WindowTooLarge`, `UnknownOperand` or `TooManyNodes`.
    pub fn pool2d(&mut self, x: NodeId, kind: PoolKind, pool: Pool2d) -> Result<NodeId, GraphError> {
        self.add_node(Op::Convolution(ConvolutionOp::Pool2d { kind, pool }), &[x])
    }
}
