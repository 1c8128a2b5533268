//! Elements chosen by other elements' values.

use serde::{Deserialize, Serialize};

/// What becomes of an element that an update is scattered to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ScatterCombine {
    /// The update takes its place; of several, the last.
    Replace,
    /// The update is added; integers wrap.
    Add,
    /// The update is multiplied; integers wrap.
    Mul,
    /// The smaller stays; NaN if either is NaN.
    Min,
    /// The larger stays; NaN if either is NaN.
    Max,
}

/// A data-dependent selection. Indices are `int32`, `uint32`, `int64` or `uint8`; a negative one counts from the end,
/// and one that is still outside is clamped to the nearest valid index (WebNN's rule), so no device reads out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IndexOp {
    /// Operands `x [a.., d, b..]` (`d` at `axis`, not 0), `indices [i..]` -> `[a.., i.., b..]`.
    Gather {
        /// The axis of `x` that indices address.
        axis: usize,
    },
    /// Adjoint of `Gather`: operands `indices [i..]`, `updates [a.., i.., b..]` -> `[a.., size, b..]`: zeros plus every
    /// update at its index, added in the order of the indices on every device.
    ScatterAdd {
        /// The axis of the result that indices address.
        axis: usize,
        /// The result's size along `axis`.
        size: usize,
    },
    /// Operands `x [a.., d, b..]` (`d` at `axis`, not 0), `indices [i..]`, `updates [a.., i.., b..]` -> `x` with every update
    /// combined into its place, in the order of the indices on every device.
    Scatter {
        /// The axis of `x` that indices address.
        axis: usize,
        /// What becomes of an element there.
        combine: ScatterCombine,
    },
}
