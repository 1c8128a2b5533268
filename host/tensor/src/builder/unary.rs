//! Element-wise operators of one operand. Shape unchanged.

use super::GraphBuilder;
use crate::DType;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{Op, Unary};

macro_rules! unary {
    ($($(#[$doc:meta])* $method:ident => $op:expr;)*) => {
        impl GraphBuilder {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// `DType`; `UnknownOperand`; `TooManyNodes`.
                pub fn $method(&mut self, x: NodeId) -> Result<NodeId, GraphError> {
                    self.add_node(Op::Unary($op), &[x])
                }
            )*
        }
    };
}

unary! {
    /// `-x`. Float or signed integer.
    neg => Unary::Neg;
    /// `|x|`. Float or signed integer.
    abs => Unary::Abs;
    /// -1, 0 or 1. Float or signed integer.
    sign => Unary::Sign;
    /// `e^x`. Float.
    exp => Unary::Exp;
    /// Natural logarithm. Float.
    log => Unary::Log;
    /// Square root. Float.
    sqrt => Unary::Sqrt;
    /// `1/x`. Float.
    reciprocal => Unary::Reciprocal;
    /// Sine of radians. Float.
    sin => Unary::Sin;
    /// Cosine of radians. Float.
    cos => Unary::Cos;
    /// Hyperbolic tangent. Float.
    tanh => Unary::Tanh;
    /// Gauss error function. Float.
    erf => Unary::Erf;
    /// Largest integer not above. Float.
    floor => Unary::Floor;
    /// Smallest integer not below. Float.
    ceil => Unary::Ceil;
    /// Nearest integer, ties to even. Float.
    round_even => Unary::RoundEven;
    /// 1 where `x` is 0, else 0. `uint8`.
    logical_not => Unary::LogicalNot;
    /// `x`, through which no gradient flows. Any type.
    stop_gradient => Unary::StopGradient;
}

impl GraphBuilder {
    /// `x` converted to `dtype`; `x` itself where it has that type already.
    ///
    /// # Errors
    /// `UnknownNode`; `TooManyNodes`.
    pub fn cast(&mut self, x: NodeId, dtype: DType) -> Result<NodeId, GraphError> {
        if self.descriptor_of(x)?.dtype == dtype {
            return Ok(x);
        }
        self.add_node(Op::Unary(Unary::Cast(dtype)), &[x])
    }
}
