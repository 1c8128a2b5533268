//! Gather and scatter: elements selected by index tensors.

use serde::{Deserialize, Serialize};

/// How an update is combined with the element at its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ScatterCombine {
    /// The update replaces the element; the last of several updates wins.
    Replace,
    /// The update is added; integers wrap.
    Add,
    /// The element is multiplied by the update; integers wrap.
    Mul,
    /// The smaller of both; NaN if either is NaN.
    Min,
    /// The larger of both; NaN if either is NaN.
    Max,
}

impl ScatterCombine {
    /// Every way to combine.
    pub const ALL: [ScatterCombine; 5] =
        [ScatterCombine::Replace, ScatterCombine::Add, ScatterCombine::Mul, ScatterCombine::Min, ScatterCombine::Max];

    /// Returns the word for it in text.
    pub const fn name(self) -> &'static str {
        match self {
            ScatterCombine::Replace => "replace",
            ScatterCombine::Add => "add",
            ScatterCombine::Mul => "mul",
            ScatterCombine::Min => "min",
            ScatterCombine::Max => "max",
        }
    }
}

/// A data-dependent selection. Indices are `int32`, `uint32`, `int64` or `uint8`. A negative index counts from the end.
/// An index that is still out of range is clamped to the nearest valid one (WebNN's rule), so no device reads out of
/// bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IndexOp {
    /// Operands `x [a.., d, b..]` (`d` at `axis`, not 0), `indices [i..]` -> `[a.., i.., b..]`.
    Gather {
        /// The axis of `x` that indices address.
        axis: usize,
    },
    /// Adjoint of `Gather`: operands `indices [i..]`, `updates [a.., i.., b..]` -> `[a.., size, b..]`. The result is
    /// zero plus every update at its index, added in the order of the indices on every device.
    ScatterAdd {
        /// The axis of the result that indices address.
        axis: usize,
        /// The result's size along `axis`.
        size: usize,
    },
    /// Operands `x [a.., d, b..]` (`d` at `axis`, not 0), `indices [i..]`, `updates [a.., i.., b..]` -> `x` with every
    /// update combined into the element at its index, in the order of the indices on every device.
    Scatter {
        /// The axis of `x` that indices address.
        axis: usize,
        /// How an update is combined with the element at its index.
        combine: ScatterCombine,
    },
}

impl IndexOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            IndexOp::Gather { .. } => "gather",
            IndexOp::ScatterAdd { .. } => "scatter-add",
            IndexOp::Scatter { .. } => "scatter",
        }
    }

    pub(super) fn prototypes() -> impl Iterator<Item = IndexOp> {
        let scatters = ScatterCombine::ALL.into_iter().map(|combine| IndexOp::Scatter { axis: 0, combine });
        [IndexOp::Gather { axis: 0 }, IndexOp::ScatterAdd { axis: 0, size: 1 }].into_iter().chain(scatters)
    }
}
