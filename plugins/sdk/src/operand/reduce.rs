//! Reductions, sums that run along, places of extremes.

use super::Operand;
use crate::bindings::graphs::ReduceOptions;
use crate::error::Result;

macro_rules! reduce {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// Reduces `axes`, or all of them if there are none; they stay with size 1 where `keep` says so.
        ///
        /// # Errors
        /// `Host`; `Built`.
        pub fn $name(&self, axes: &[u32], keep: bool) -> Result<Self> {
            let axes = if axes.is_empty() { None } else { Some(axes.to_vec()) };
            let options = ReduceOptions { axes, keep_dimensions: Some(keep) };
            self.graph.add_operand(|builder| builder.$name(&self.raw, &options))
        }
    )* };
}

/// Reductions.
impl Operand {
    reduce! {
        /// The sum; of nothing: 0.
        reduce_sum;
        /// The mean; of nothing: NaN.
        reduce_mean;
        /// The largest.
        reduce_max;
        /// The smallest.
        reduce_min;
        /// The product; of nothing: 1.
        reduce_product;
        /// The sum of magnitudes.
        reduce_l1;
        /// The square root of the sum of squares.
        reduce_l2;
        /// The logarithm of the sum.
        reduce_log_sum;
        /// The logarithm of the sum of exponentials, without overflow.
        reduce_log_sum_exp;
        /// The sum of squares.
        reduce_sum_square;
    }

    /// Each element plus all before it along `axis`; with `exclusive` without itself, with `reversed` after instead of
    /// before.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn cumulative_sum(&self, axis: u32, exclusive: bool, reversed: bool) -> Result<Self> {
        self.graph.add_operand(|builder| builder.cumulative_sum(&self.raw, axis, exclusive, reversed))
    }

    /// The index of the largest element along `axis`, the first of equals; `int32`. The axis stays with size 1 where
    /// `keep` says so.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn arg_max(&self, axis: u32, keep: bool) -> Result<Self> {
        self.graph.add_operand(|builder| builder.arg_max(&self.raw, axis, keep))
    }

    /// The index of the smallest element along `axis`, the first of equals; `int32`. The axis stays with size 1 where
    /// `keep` says so.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn arg_min(&self, axis: u32, keep: bool) -> Result<Self> {
        self.graph.add_operand(|builder| builder.arg_min(&self.raw, axis, keep))
    }
}
