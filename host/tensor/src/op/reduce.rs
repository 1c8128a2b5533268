//! Reductions. Reduced axes stay with size 1; dropping them is a reshape.

use serde::{Deserialize, Serialize};

use super::BinaryOp;

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

impl ReduceKind {
    /// Every kind.
    pub const ALL: [ReduceKind; 4] = [ReduceKind::Sum, ReduceKind::Product, ReduceKind::Max, ReduceKind::Min];

    /// Returns the operator that combines two elements.
    pub const fn combine(self) -> BinaryOp {
        match self {
            ReduceKind::Sum => BinaryOp::Add,
            ReduceKind::Product => BinaryOp::Mul,
            ReduceKind::Max => BinaryOp::Max,
            ReduceKind::Min => BinaryOp::Min,
        }
    }
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

impl ReduceOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            ReduceOp::Fold { kind: ReduceKind::Sum, .. } => "reduce-sum",
            ReduceOp::Fold { kind: ReduceKind::Product, .. } => "reduce-product",
            ReduceOp::Fold { kind: ReduceKind::Max, .. } => "reduce-max",
            ReduceOp::Fold { kind: ReduceKind::Min, .. } => "reduce-min",
            ReduceOp::ArgMax { .. } => "arg-max",
            ReduceOp::ArgMin { .. } => "arg-min",
        }
    }

    pub(super) fn prototypes() -> impl Iterator<Item = ReduceOp> {
        let folds = ReduceKind::ALL.into_iter().map(|kind| ReduceOp::Fold { kind, axes: Vec::new() });
        folds.chain([ReduceOp::ArgMax { axis: 0 }, ReduceOp::ArgMin { axis: 0 }])
    }

    /// Returns the largest error of a device; see [`Op::error_units`](super::Op::error_units).
    pub(super) const fn error_units(&self) -> f64 {
        match self {
            ReduceOp::Fold { kind: ReduceKind::Sum | ReduceKind::Product, .. } => 16.0,
            ReduceOp::Fold { kind: ReduceKind::Max | ReduceKind::Min, .. }
            | ReduceOp::ArgMax { .. }
            | ReduceOp::ArgMin { .. } => 0.0,
        }
    }
}
