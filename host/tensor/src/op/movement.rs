//! Movements: operators that move, repeat or drop elements without changing them. Any data type.

use serde::{Deserialize, Serialize};

use super::Scalar;
use crate::Shape;

/// A movement of elements. One operand, except `Concat`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MovementOp {
    /// The same elements in row-major order, in another shape of the same size.
    Reshape(Shape),
    /// Repeats axes of size 1 to the target's size. Ranks are equal.
    Broadcast(Shape),
    /// Result axis `i` is operand axis `.0[i]`.
    Transpose(Vec<usize>),
    /// Takes, along each axis, `sizes[i]` elements from `starts[i]`, every `strides[i]`-th.
    Slice {
        /// First index along each axis.
        starts: Vec<usize>,
        /// Elements of the result along each axis.
        sizes: Vec<usize>,
        /// Step along each axis, at least 1.
        strides: Vec<usize>,
    },
    /// Reverses the order along these axes (sorted, distinct).
    Reverse(Vec<usize>),
    /// Adds `value` before and after along each axis.
    Pad {
        /// Number of elements added before, for each axis.
        low: Vec<usize>,
        /// Number of elements added after, for each axis.
        high: Vec<usize>,
        /// The padding value.
        value: Scalar,
    },
    /// Joins one or more operands along `axis`; other dimensions are equal.
    Concat {
        /// The axis.
        axis: usize,
    },
}

impl MovementOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            MovementOp::Reshape(_) => "reshape",
            MovementOp::Broadcast(_) => "expand",
            MovementOp::Transpose(_) => "transpose",
            MovementOp::Slice { .. } => "slice",
            MovementOp::Reverse(_) => "reverse",
            MovementOp::Pad { .. } => "pad",
            MovementOp::Concat { .. } => "concat",
        }
    }

    pub(super) fn prototypes() -> [MovementOp; 7] {
        let none = Vec::new;
        [
            MovementOp::Reshape(Shape::scalar()),
            MovementOp::Broadcast(Shape::scalar()),
            MovementOp::Transpose(none()),
            MovementOp::Slice { starts: none(), sizes: none(), strides: none() },
            MovementOp::Reverse(none()),
            MovementOp::Pad { low: none(), high: none(), value: Scalar::Int(0) },
            MovementOp::Concat { axis: 0 },
        ]
    }

    /// Returns whether each element of the result is an element of the only operand: nothing is added or joined.
    pub const fn is_rearrangement(&self) -> bool {
        match self {
            MovementOp::Reshape(_)
            | MovementOp::Broadcast(_)
            | MovementOp::Transpose(_)
            | MovementOp::Slice { .. }
            | MovementOp::Reverse(_) => true,
            MovementOp::Pad { .. } | MovementOp::Concat { .. } => false,
        }
    }
}
