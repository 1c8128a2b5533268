//! Element-wise operators of one operand. Operand and result have the same shape, and the same data type unless stated
//! otherwise.

use serde::{Deserialize, Serialize};

use crate::DType;

/// An element-wise operator of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UnaryOp {
    /// `-x`; signed integers wrap. Float or signed integer.
    Neg,
    /// `|x|`; signed integers wrap. Float or signed integer.
    Abs,
    /// -1, 0 or 1; NaN stays NaN. Float or signed integer.
    Sign,
    /// `e^x`. Float.
    Exp,
    /// Natural logarithm; NaN below 0, -inf at 0. Float.
    Log,
    /// Square root; NaN below 0. Float.
    Sqrt,
    /// `1/x`. Float.
    Reciprocal,
    /// Sine, radians. Float.
    Sin,
    /// Cosine, radians. Float.
    Cos,
    /// Hyperbolic tangent. Float.
    Tanh,
    /// Gauss error function. Float.
    Erf,
    /// Largest integer not above the operand. Float.
    Floor,
    /// Smallest integer not below the operand. Float.
    Ceil,
    /// Nearest integer, ties to even. Float.
    RoundEven,
    /// 1 if the operand is 0, else 0. `uint8`.
    LogicalNot,
    /// The operand unchanged; its gradient is zero. Any type.
    StopGradient,
    /// Conversion to another data type. Float to integer truncates toward zero and saturates (NaN becomes 0); integer
    /// to a narrower integer keeps the low bits.
    Cast(DType),
}
