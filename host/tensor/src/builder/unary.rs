//! Element-wise operators of one operand. Shape unchanged.

use super::GraphBuilder;
use crate::DType;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{Op, UnaryOp};

macro_rules! unary {
    ($($(#[$doc:meta])* $method:ident => $op:expr;)*) => {
        impl GraphBuilder {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Returns `DType`, `UnknownOperand` or `TooManyNodes`.
                pub fn $method(&mut self, x: NodeId) -> Result<NodeId, GraphError> {
                    self.add_node(Op::Unary($op), &[x])
                }
            )*
        }
    };
}

unary! {
    /// `-x`. Float or signed integer.
    neg => UnaryOp::Neg;
    /// `|x|`. Float or signed integer.
    abs => UnaryOp::Abs;
    /// -1, 0 or 1. Float or signed integer.
    sign => UnaryOp::Sign;
    /// `e^x`. Float.
    exp => UnaryOp::Exp;
    /// Natural logarithm. Float.
    log => UnaryOp::Log;
    /// Square root. Float.
    sqrt => UnaryOp::Sqrt;
    /// `1/x`. Float.
    reciprocal => UnaryOp::Reciprocal;
    /// Sine of radians. Float.
    sin => UnaryOp::Sin;
    /// Cosine of radians. Float.
    cos => UnaryOp::Cos;
    /// Hyperbolic tangent. Float.
    tanh => UnaryOp::Tanh;
    /// Gauss error function. Float.
    erf => UnaryOp::Erf;
    /// Largest integer not above `x`. Float.
    floor => UnaryOp::Floor;
    /// Smallest integer not below `x`. Float.
    ceil => UnaryOp::Ceil;
    /// Nearest integer, ties to even. Float.
    round_even => UnaryOp::RoundEven;
    /// 1 if `x` is 0, else 0. `uint8`.
    logical_not => UnaryOp::LogicalNot;
    /// `x` with a gradient of zero. Any type.
    stop_gradient => UnaryOp::StopGradient;
}

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
