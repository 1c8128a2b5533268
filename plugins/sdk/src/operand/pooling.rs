//! Windows of images made one element each.

use super::Operand;
use crate::bindings::graphs::Pool2dOptions;
use crate::error::Result;

/// Poolings.
impl Operand {
    /// The largest of each window of `[height, width]`, windows side by side.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn max_pool2d(&self, window: [u32; 2]) -> Result<Self> {
        self.max_pool2d_with(non_overlapping(window))
    }

    /// The largest of each window.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn max_pool2d_with(&self, options: Pool2dOptions) -> Result<Self> {
        self.graph.add_operand(|builder| builder.max_pool2d(&self.raw, options))
    }

    /// The mean of each window of `[height, width]`, windows side by side.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn average_pool2d(&self, window: [u32; 2]) -> Result<Self> {
        self.average_pool2d_with(non_overlapping(window))
    }

    /// The mean of each window, padding not counted.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn average_pool2d_with(&self, options: Pool2dOptions) -> Result<Self> {
        self.graph.add_operand(|builder| builder.average_pool2d(&self.raw, options))
    }

    /// The square root of the sum of squares of each window of `[height, width]`, windows side by side.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn l2_pool2d(&self, window: [u32; 2]) -> Result<Self> {
        self.l2_pool2d_with(non_overlapping(window))
    }

    /// The square root of the sum of squares of each window.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn l2_pool2d_with(&self, options: Pool2dOptions) -> Result<Self> {
        self.graph.add_operand(|builder| builder.l2_pool2d(&self.raw, options))
    }
}

fn non_overlapping([height, width]: [u32; 2]) -> Pool2dOptions {
    let window = Some((height, width));
    Pool2dOptions { window_dimensions: window, strides: window, ..Pool2dOptions::default() }
}
