//! Reductions. Reduced axes stay with size 1; dropping them is a reshape.

use serde::{Deserialize, Serialize};

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReduceKind {
    /// Sum; of zero elements: 0.
    Sum,
    /// Product; of zero elements: 1.
    Product,
    /// Largest, NaN if any is NaN; of zero elements: -inf, or the type's smallest value.
    Max,
    /// Smallest, NaN if any is NaN; of zero elements: +inf, or the type's largest value.
    Min,
}

/// A reduction of one operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReduceOp {
    /// Combines elements over `axes` (sorted, distinct). DType unchanged.
    Fold {
        /// How elements are combined.
        kind: ReduceKind,
        /// The axes.
        axes: Vec<usize>,
    },
    /// Index of the first largest element along `axis`. Result `int32`. An axis of size 0 is refused.
    ArgMax {
        /// The axis.
        axis: usize,
    },
    /// Index of the first smallest element along `axis`. Result `int32`. An axis of size 0 is refused.
    ArgMin {
        /// The axis.
        axis: usize,
    },
}
