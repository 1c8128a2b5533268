//! Pooling: reduces each window of an image to one element. Shape, with default layouts:
//! `[batch, channels, height, width]` -> `[batch, channels, height', width']`.

use super::Operand;
use crate::bindings::graphs::Pool2dOptions;
use crate::error::Result;

/// Pooling.
impl Operand {
    /// Returns the maximum of each window of `[height, width]`, without overlap. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn max_pool2d(&self, window: [u32; 2]) -> Result<Self> {
        self.max_pool2d_with(non_overlapping(window))
    }

    /// Returns the maximum of each window. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn max_pool2d_with(&self, options: Pool2dOptions) -> Result<Self> {
        self.graph.add_operand(|builder| builder.max_pool2d(&self.raw, options))
    }

    /// Returns the mean of each window of `[height, width]`, without overlap. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn average_pool2d(&self, window: [u32; 2]) -> Result<Self> {
        self.average_pool2d_with(non_overlapping(window))
    }

    /// Returns the mean of each window, excluding padding. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn average_pool2d_with(&self, options: Pool2dOptions) -> Result<Self> {
        self.graph.add_operand(|builder| builder.average_pool2d(&self.raw, options))
    }

    /// Returns the square root of the sum of squares of each window of `[height, width]`, without overlap. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn l2_pool2d(&self, window: [u32; 2]) -> Result<Self> {
        self.l2_pool2d_with(non_overlapping(window))
    }

    /// Returns the square root of the sum of squares of each window. Float.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn l2_pool2d_with(&self, options: Pool2dOptions) -> Result<Self> {
        self.graph.add_operand(|builder| builder.l2_pool2d(&self.raw, options))
    }
}

fn non_overlapping([height, width]: [u32; 2]) -> Pool2dOptions {
    let window = Some((height, width));
    Pool2dOptions { window_dimensions: window, strides: window, ..Pool2dOptions::default() }
}
