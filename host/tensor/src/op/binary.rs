//! Element-wise operators of two operands of one shape and one data type.

use serde::{Deserialize, Serialize};

/// An element-wise operator of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BinaryOp {
    /// Sum; integers wrap.
    Add,
    /// Difference; integers wrap.
    Sub,
    /// Product; integers wrap.
    Mul,
    /// Quotient; integers truncate toward zero, and division by zero gives 0 (defined so that every device agrees).
    Div,
    /// `a` to the power of `b`. Float.
    Pow,
    /// The larger; NaN if either is NaN.
    Max,
    /// The smaller; NaN if either is NaN.
    Min,
    /// 1 if equal, else 0. Result `uint8`.
    Equal,
    /// 1 if `a < b`, else 0. Result `uint8`.
    Less,
    /// 1 if `a <= b`, else 0. Result `uint8`.
    LessOrEqual,
    /// 1 if both are non-zero, else 0. `uint8` operands and result.
    LogicalAnd,
    /// 1 if either is non-zero, else 0. `uint8` operands and result.
    LogicalOr,
    /// 1 if exactly one is non-zero, else 0. `uint8` operands and result.
    LogicalXor,
}
