//! Two operands of one shape and one data type, element by element.

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
    /// `a` to the power `b`. Float.
    Pow,
    /// The larger; NaN if either is NaN.
    Max,
    /// The smaller; NaN if either is NaN.
    Min,
    /// 1 where equal. Result `uint8`.
    Equal,
    /// 1 where `a < b`. Result `uint8`.
    Less,
    /// 1 where `a <= b`. Result `uint8`.
    LessOrEqual,
    /// 1 where both are non-zero. `uint8` operands and result.
    LogicalAnd,
    /// 1 where either is non-zero. `uint8` operands and result.
    LogicalOr,
    /// 1 where exactly one is non-zero. `uint8` operands and result.
    LogicalXor,
}
