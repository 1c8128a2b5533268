//! Fewer elements along some axes. Reduced axes stay with size 1; dropping them is a reshape.

use serde::{Deserialize, Serialize};

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReduceKind {
    /// Sum; of nothing: 0.
    Sum,
    /// Product; of nothing: 1.
    Product,
    /// Largest, NaN if any is NaN; of nothing: -inf, or the type's smallest value.
    Max,
    /// Smallest, NaN if any is NaN; of nothing: +inf, or the type's largest value.
    Min,
}

/// A reduction of one operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReduceOp {
    /// Combines over `axes` (sorted, distinct). DType unchanged.
    Fold {
        /// How.
        kind: ReduceKind,
        /// Over which axes.
        axes: Vec<usize>,
    },
    /// Index of the largest element along `axis`, the first of equals. Result `int32`. Axis of size 0 is refused.
    ArgMax {
        /// Along which axis.
        axis: usize,
    },
    /// Index of the smallest element along `axis`, the first of equals. Result `int32`. Axis of size 0 is refused.
    ArgMin {
        /// Along which axis.
        axis: usize,
    },
}
