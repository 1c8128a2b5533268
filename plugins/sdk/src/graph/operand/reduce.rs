//! Reductions, cumulative sums, arg-max and arg-min.

use super::Operand;
use crate::bindings::graphs::ReduceOptions;
use crate::error::Result;

macro_rules! reduce {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// Reduces `axes`, or all axes if `axes` is empty. If `keep` is true, reduced axes are kept with size 1.
        ///
        /// # Errors
        /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
        #[track_caller]
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
        /// Returns the sum; 0 for no elements.
        reduce_sum;
        /// Returns the mean; NaN for no elements. Float.
        reduce_mean;
        /// Returns the largest element; NaN if any is NaN.
        reduce_max;
        /// Returns the smallest element; NaN if any is NaN.
        reduce_min;
        /// Returns the product; 1 for no elements.
        reduce_product;
        /// Returns the sum of absolute values.
        reduce_l1;
        /// Returns the square root of the sum of squares.
        reduce_l2;
        /// Returns the logarithm of the sum.
        reduce_log_sum;
        /// Returns the logarithm of the sum of exponentials, computed without overflow.
        reduce_log_sum_exp;
        /// Returns the sum of squares.
        reduce_sum_square;
    }

    /// Returns the cumulative sum along `axis`: each element plus all elements before it. With `exclusive`, the element
    /// itself is not included; with `reversed`, the elements after it are summed instead of those before it.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn cumulative_sum(&self, axis: u32, exclusive: bool, reversed: bool) -> Result<Self> {
        self.graph.add_operand(|builder| builder.cumulative_sum(&self.raw, axis, exclusive, reversed))
    }

    /// Returns the index of the largest element along `axis`, the first one if several are equal; `int32`. If `keep` is
    /// true, the axis is kept with size 1.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn arg_max(&self, axis: u32, keep: bool) -> Result<Self> {
        self.graph.add_operand(|builder| builder.arg_max(&self.raw, axis, keep))
    }

    /// Returns the index of the smallest element along `axis`, the first one if several are equal; `int32`. If `keep`
    /// is true, the axis is kept with size 1.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn arg_min(&self, axis: u32, keep: bool) -> Result<Self> {
        self.graph.add_operand(|builder| builder.arg_min(&self.raw, axis, keep))
    }
}
