//! Elements moved, repeated or left out; never changed. Any data type.

use serde::{Deserialize, Serialize};

use super::Scalar;
use crate::Shape;

/// A movement of elements. One operand, except `Concat`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MovementOp {
    /// The same elements in row-major order under another shape of the same size.
    Reshape(Shape),
    /// Axes of size 1 repeated to the target's size. Ranks are equal.
    Broadcast(Shape),
    /// Result axis `i` is operand axis `.0[i]`.
    Transpose(Vec<usize>),
    /// Along each axis: `sizes[i]` elements from `starts[i]`, every `strides[i]`-th.
    Slice {
        /// First index along each axis.
        starts: Vec<usize>,
        /// Elements of the result along each axis.
        sizes: Vec<usize>,
        /// Step along each axis, at least 1.
        strides: Vec<usize>,
    },
    /// Order reversed along these axes (sorted, distinct).
    Reverse(Vec<usize>),
    /// `value` added before and after along each axis.
    Pad {
        /// Elements added before, for each axis.
        low: Vec<usize>,
        /// Elements added after, for each axis.
        high: Vec<usize>,
        /// What is added.
        value: Scalar,
    },
    /// One or more operands joined along `axis`; other dimensions equal.
    Concat {
        /// Along which axis.
        axis: usize,
    },
}
