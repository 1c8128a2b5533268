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
